"""Where workers run: on this machine, as Slurm jobs, or on a Ray cluster. Each engine only starts workers.

What is trained, told and recorded is the same everywhere: a worker takes lanes from the study's ledger.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelab.models.config import nearest
from statelab.sweeps.errors import UserError
from statelab.sweeps.stop import StopSignals

if TYPE_CHECKING:
    from statelab.sweeps.ahead import Ahead

KINDS = ("local", "ray", "slurm")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine and its own options: for slurm those of submitit (`timeout_min`, `slurm_partition`, …) and
    `cluster`; for ray `address` and `gpus`, the share of a card that each worker has.
    """

    kind: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)


LOCAL = Engine()


@dataclass(frozen=True)
class Crew:
    """`count` workers of the study in `folder`; `url` is its storage where that is a database."""

    folder: Path
    count: int
    device: str
    max_lanes: int
    url: str | None = None

    def command(self, *more: str) -> list[str]:
        """The command line of one worker. The storage's URL, which may hold a password, is not on it."""
        return [
            sys.executable, "-m", "statelab.sweeps.cli", "worker", str(self.folder.absolute()),
            "--device", self.device, "--max-lanes", str(self.max_lanes), *more,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """What a worker's environment has beside its machine's."""
        return {} if self.url is None else {"STATELAB_STORAGE": self.url}


def engine_of(engine: Engine, ahead: Ahead | None = None) -> Callable[[Crew, StopSignals], None]:
    """What runs a crew until no lane waits; on this machine with workers that were started ahead, if they are there.

    Raises UserError for an unknown engine, option or missing package.
    """
    if engine.kind == "slurm":
        from statelab.sweeps.slurm import slurm_engine

        return slurm_engine(engine.options)
    if engine.kind == "ray":
        from statelab.sweeps.rays import ray_engine

        return ray_engine(engine.options)
    if engine.kind != "local":
        raise UserError(
            f"unknown engine {engine.kind!r}; known: {', '.join(KINDS)}.{nearest(engine.kind, KINDS)}"
        )
    if engine.options:
        raise UserError(f"the local engine has no option {min(engine.options)!r}: --workers is all it takes")
    from statelab.sweeps.pool import Pool

    return lambda crew, stop: Pool(crew, stop, ahead).run()
