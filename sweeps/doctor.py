"""What this machine has, in plain words."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import statelab
from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import EXTRAS
from statelab.sweeps.pool import cores

PACKAGES = ("torch", "triton", "lightning", "optuna", "numpy", "pandas", "scipy", "seaborn", "pydantic")


def examine(storage: str | None = None) -> str:
    """Versions, graphics cards, threads, disk, extras, storage: one line each, with what follows from it."""
    return "\n".join(
        [
            f"statelab {statelab.__version__}, Python {platform.python_version()}, {platform.platform()}",
            *(f"{name} {_version(name)}" for name in PACKAGES),
            *_torch_lines(),
            *_disk_lines(),
            *_extra_lines(),
            *_storage_lines(storage),
        ]
    )


def _torch_lines() -> Iterator[str]:
    import torch

    yield f"CPU: {cores()} of {os.cpu_count()} cores may be used, torch uses {torch.get_num_threads()} threads"
    if not torch.cuda.is_available():
        built = (
            f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is a CPU build"
        )
        yield f"GPU: none that torch can use ({built}); studies run on the CPU"
        return
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield f"GPU {index}: {card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    if find_spec("triton") is None:
        yield "triton is not there: recurrences run by their slower reference"


def _disk_lines() -> Iterator[str]:
    free = shutil.disk_usage(".").free / 1e9
    yield f"disk: {free:.1f} GB free here" + (" — little for long studies" if free < 1 else "")
    if os.access(".", os.W_OK):
        yield "this folder can be written to"
    else:
        yield "this folder is read-only: use --runs elsewhere"
    if sys.platform == "linux" and (kind := _network_filesystem(Path.cwd())):
        yield f"this folder is on {kind}: workers of several machines need locks (flock) that all of them see"


def _extra_lines() -> Iterator[str]:
    for extra, (module, package, purpose) in EXTRAS.items():
        there = find_spec(module) is not None
        missing = f"not installed: pip install 'statelab[{extra}]'"
        yield f"extra {extra}: {f'{package} {_version(package)}' if there else missing} ({purpose})"
    if (sbatch := shutil.which("sbatch")) is not None:
        yield f"Slurm: {sbatch}"


def _storage_lines(storage: str | None) -> Iterator[str]:
    if storage is None:
        yield "storage: the journal file in each study's folder"
        return
    from statelab.sweeps.storage import reach, without_password

    try:
        yield f"storage {without_password(storage)}: {reach(storage)}"
    except UserError as error:
        yield str(error)


def _network_filesystem(path: Path) -> str | None:
    """The kind of network file system that a path lies on, or None."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    above = [m for m in mounts if path.is_relative_to(m[1])]
    kind = max(above, key=lambda m: len(m[1]))[2] if above else ""
    return kind if kind.startswith(("nfs", "lustre", "ceph", "gpfs", "beegfs", "cifs", "9p")) else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is missing: run `make setup`" if name != "triton" else "is not installed (only Linux has it)"
