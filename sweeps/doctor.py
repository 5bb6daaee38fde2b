"""What this machine has, in plain words."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import statelab

PACKAGES = ("torch", "triton", "lightning", "optuna", "numpy", "pandas", "scipy", "seaborn", "pydantic")


def examine() -> str:
    """Versions, graphics card, threads, disk: one line each, with what follows from it."""
    lines = [f"statelab {statelab.__version__}, Python {platform.python_version()}, {platform.platform()}"]
    lines += [f"{name} {_version(name)}" for name in PACKAGES]
    lines += _torch_lines()
    free = shutil.disk_usage(".").free / 1e9
    lines.append(f"disk: {free:.1f} GB free here" + (" — little for long studies" if free < 1 else ""))
    writable = os.access(".", os.W_OK)
    lines.append(
        "this folder can be written to" if writable else "this folder is read-only: use --runs elsewhere"
    )
    return "\n".join(lines)


def _torch_lines() -> list[str]:
    import torch

    lines = [f"CPU: {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"]
    if not torch.cuda.is_available():
        built = (
            f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is a CPU build"
        )
        return [*lines, f"GPU: none that torch can use ({built}); studies run on the CPU"]
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        lines.append(
            f"GPU {index}: {card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        )
    return lines


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is missing: run `make setup`" if name != "triton" else "is not installed (only Linux has it)"
