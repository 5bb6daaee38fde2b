"""How lanes are trained and evaluated, as plain data: read and checked without importing torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

Schedule = Literal["constant", "cosine"]
Decay = Literal["all", "marked"]
Arithmetic = Literal["float32", "tf32", "bf16", "float64"]


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """The numbers of AdamW and of its schedule; each may differ from lane to lane."""

    learning_rate: Annotated[float, "peak learning rate"]
    weight_decay: Annotated[float, "decoupled weight decay, multiplied by the current rate"] = 0.01
    beta1: Annotated[float, "decay of the mean of gradients"] = 0.9
    beta2: Annotated[float, "decay of the mean of squared gradients"] = 0.999
    eps: Annotated[float, "added to the root of the mean square"] = 1e-8
    clip: Annotated[float, "largest norm of a lane's gradient; 0 leaves it alone"] = 1.0
    warmup: Annotated[int, "steps over which the rate rises linearly from 0 to its peak"] = 0
    floor: Annotated[float, "rate at the end of a cosine, as a fraction of the peak"] = 0.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "eps"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a finite number > 0, got {value}")
        for name in ("weight_decay", "clip", "warmup"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a finite number >= 0, got {value}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor is a fraction of the peak rate in [0, 1], got {self.floor}")


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One training run: its seed, for weights and rows, and its optimiser's numbers."""

    seed: int
    optimiser: OptimiserSettings

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed must lie in [0, 2**32), got {self.seed}")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What all lanes of a cell share."""

    length: Annotated[int, "training length, as the task counts it"]
    steps: Annotated[int, "optimiser steps"] = 1000
    batch: Annotated[int, "rows per lane and step"] = 64
    schedule: Annotated[Schedule, "rate after the warm-up: constant, or a cosine down to the floor"] = (
        "cosine"
    )
    decay: Annotated[Decay, "which parameters decay: all, or all but those a layer marks"] = "marked"
    arithmetic: Annotated[Arithmetic, "of the forward and backward pass"] = "float32"

    def __post_init__(self) -> None:
        for name in ("length", "steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """When and on what lanes are measured.

    Evaluation rows are fixed for the whole training. They are one set for the study, or one for each seed.
    """

    every: Annotated[int, "steps between evaluations at the training length"] = 200
    rows: Annotated[int, "rows of each evaluation"] = 256
    test_lengths: Annotated[tuple[int, ...], "lengths measured once, after the last step"] = field(default=())
    per_seed: Annotated[bool, "whether every seed has evaluation rows of its own"] = False
    seed: Annotated[int, "seed of the study's evaluation rows"] = 0

    def __post_init__(self) -> None:
        for name in ("every", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed must lie in [0, 2**32), got {self.seed}")
