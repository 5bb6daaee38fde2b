"""How lanes are trained and evaluated, as plain data: read and checked without importing torch."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Literal

Schedule = Literal["constant", "cosine"]
Decay = Literal["all", "marked"]
Arithmetic = Literal["float32", "tf32", "bf16", "float64"]
Metric = Literal["by_distance", "exact_answers", "per_class", "per_position", "prefix_exact"]


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
class LengthStage:
    """Training lengths of the steps before `until` that no earlier stage has: one length a step.

    Either uniform over a range, or drawn among some with weights. The draw is a function of the step alone.
    """

    until: Annotated[int | None, "the first step that is no longer in this stage; None: to the end"] = None
    between: Annotated[tuple[int, ...], "shortest and longest length"] = ()
    among: Annotated[tuple[int, ...], "lengths of a mixture"] = ()
    weights: Annotated[tuple[float, ...], "weights of the lengths of a mixture; none: all alike"] = ()

    def __post_init__(self) -> None:
        if bool(self.between) == bool(self.among):
            raise ValueError("a stage has either between = [shortest, longest] or among = [lengths]")
        if self.between and (len(self.between) != 2 or not 1 <= self.between[0] <= self.between[1]):
            raise ValueError(
                f"between is [shortest, longest] with 1 <= shortest <= longest, got {list(self.between)}"
            )
        if self.among and min(self.among) < 1:
            raise ValueError(f"lengths must be >= 1, got {min(self.among)}")
        if self.weights and (len(self.weights) != len(self.among) or min(self.weights) <= 0):
            raise ValueError(
                f"weights must be one number > 0 for each length of among: {len(self.among)}, got {list(self.weights)}"
            )
        if self.until is not None and self.until < 1:
            raise ValueError(f"until must be >= 1, got {self.until}")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Every length that the stage may draw."""
        return self.among or tuple(range(self.between[0], self.between[-1] + 1))

    def draw(self, step: int) -> int:
        """The length of a step."""
        digest = hashlib.blake2b(step.to_bytes(8, "little"), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        if self.between:
            low, high = self.between
            return low + (number * (high - low + 1) >> 64)
        weights = self.weights or (1.0,) * len(self.among)
        edges = itertools.accumulate(weights)
        place = number / 2**64 * sum(weights)
        return next((n for n, edge in zip(self.among, edges, strict=True) if place < edge), self.among[-1])


@dataclass(frozen=True, kw_only=True)
class Anneal:
    """How the blend α of orthogonal mLSTM reads goes from 1 to `end` while training, for each lane by itself."""

    start: Annotated[int, "step from which the dwell counts, without a gate"] = 0
    gate: Annotated[
        float | None, "accuracy whose first evaluation starts the dwell instead; None: no gate"
    ] = None
    dwell: Annotated[int, "steps between the start, or the gate, and the line"] = 200
    span: Annotated[int, "steps that the line from 1 to its end takes"] = 500
    end: Annotated[float, "the blend at the end: 0 is the raw read"] = 0.0

    def __post_init__(self) -> None:
        if self.start < 0 or self.dwell < 0 or self.span < 1:
            raise ValueError(f"start {self.start} and dwell {self.dwell} must be >= 0, span {self.span} >= 1")
        if self.gate is not None and not 0 < self.gate <= 1:
            raise ValueError(f"gate is an accuracy in (0, 1], got {self.gate}")
        if not 0 <= self.end <= 1:
            raise ValueError(f"end is a blend in [0, 1], got {self.end}")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What all lanes of a cell share."""

    length: Annotated[int, "length at which lanes are evaluated and, without stages, trained"]
    stages: Annotated[
        tuple[LengthStage, ...], "training lengths of a curriculum or mixture; none: length"
    ] = ()
    steps: Annotated[int, "optimiser steps"] = 1000
    batch: Annotated[int, "rows per lane and step"] = 64
    schedule: Annotated[Schedule, "rate after the warm-up: constant, or a cosine down to the floor"] = (
        "cosine"
    )
    decay: Annotated[Decay, "which parameters decay: all, or all but those a layer marks"] = "marked"
    arithmetic: Annotated[Arithmetic, "of the forward and backward pass"] = "float32"
    anneal: Annotated[Anneal | None, "takes the orthogonal read of mLSTM layers away while training"] = None

    def __post_init__(self) -> None:
        for name in ("length", "steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        ends = [stage.until for stage in self.stages]
        if any(end is None for end in ends[:-1]) or (ends and ends[-1] is not None):
            raise ValueError("every stage but the last needs until = step, and the last has none")
        if any(a >= b for a, b in itertools.pairwise(end for end in ends if end is not None)):
            raise ValueError(f"the stages' until must rise, got {ends[:-1]}")

    def length_at(self, step: int) -> int:
        """The training length of a step: a function of the step alone, the same for all lanes."""
        for stage in self.stages:
            if stage.until is None or step < stage.until:
                return stage.draw(step)
        return self.length


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """When and on what lanes are measured.

    Evaluation rows are fixed for the whole training. They are one set for the study, or one for each seed.
    """

    every: Annotated[int, "steps between evaluations at the training length"] = 200
    rows: Annotated[int, "rows of each evaluation"] = 256
    test_lengths: Annotated[tuple[int, ...], "lengths measured once, after the last step"] = ()
    test_ranges: Annotated[
        tuple[tuple[int, int], ...],
        "ranges of lengths measured once, after the last step, as one number each",
    ] = ()
    metrics: Annotated[tuple[Metric, ...], "what is measured beside accuracy at the test lengths"] = ()
    per_seed: Annotated[bool, "whether every seed has evaluation rows of its own"] = False
    seed: Annotated[int, "seed of the study's evaluation rows"] = 0

    @property
    def has_tests(self) -> bool:
        """Whether anything is measured after the last step."""
        return bool(self.test_lengths or self.test_ranges)

    def __post_init__(self) -> None:
        for name in ("every", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed must lie in [0, 2**32), got {self.seed}")
