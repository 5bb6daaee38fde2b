"""How steps are executed: options of a machine or a run, never of the science; results agree to rounding."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from statelab.models.settings import TrainingSettings

Choice = Literal["auto", "on", "off"]

COMPILE, CAPTURE = "STATELAB_COMPILE", "STATELAB_CAPTURE"
"""Environment variables by which a command line hands the options to its workers."""

COMPILE_STEPS = 20_000
"""Steps left from which `auto` compiles: compiling takes as long as some thousands of steps save."""

COMPILE_LENGTHS = 2
"""Training lengths up to which `auto` compiles: each is compiled by itself."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """`capture`: replay each step as one CUDA graph; `compile`: fuse its operations with torch.compile first.

    `auto` captures on every CUDA device, and compiles there where the steps left are many and their lengths few.
    """

    capture: Choice = "auto"
    compile: Choice = "auto"

    def __post_init__(self) -> None:
        for name in ("capture", "compile"):
            if getattr(self, name) not in get_args(Choice):
                raise ValueError(f"{name} is auto, on or off, got {getattr(self, name)!r}")

    @classmethod
    def from_environment(cls) -> Execution:
        """What STATELAB_CAPTURE and STATELAB_COMPILE say; auto where they say nothing. Raises ValueError."""
        return cls(
            capture=_choice(CAPTURE),
            compile=_choice(COMPILE),
        )

    def compiles(self, training: TrainingSettings, done: int, device_type: str) -> bool:
        """Whether the steps that are left after `done` of a training should be compiled."""
        if self.compile != "auto":
            return self.compile == "on"
        lengths = {length for stage in training.stages for length in stage.lengths}
        many = training.steps - done >= COMPILE_STEPS
        return device_type == "cuda" and many and len(lengths) <= COMPILE_LENGTHS


def _choice(name: str) -> Choice:
    value = os.environ.get(name, "auto")
    for choice in get_args(Choice):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise ValueError(f"{name} is {value!r}; use {', '.join(get_args(Choice))}")
