"""Training speed against context length at a fixed number of tokens a step, model by model.

The layout is that of Fig. 10 of arXiv 2603.14360 (M²RNN), at laboratory size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from statelab.models.benchmark import WARM_UP
from statelab.models.learner import Learner
from statelab.models.lineup import HYBRID, HYBRID_M2RNN, model_by_model, model_named
from statelab.models.settings import Arithmetic, EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.models.speed_text import Cell, block, cell_of, check_choices, heading, remarks, short
from statelab.models.timing import noted, place_of, rows_of, sentence, start_afresh, timed
from statelab.tasks.group_word import GroupWord

TASK = GroupWord(group="S5")
"""120 tokens, an answer after each: a language model's loss at a laboratory's vocabulary."""

ARITHMETICS: tuple[str, ...] = ("float32", "tf32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is trained: each length in as many rows as make `tokens`; about `seconds` go into one measurement."""

    lengths: tuple[int, ...]
    tokens: int
    arithmetic: str
    width: int = 128
    layers: int = 8
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_choices("arithmetic", [self.arithmetic], ARITHMETICS)
        sizes = (*self.lengths, self.tokens, self.width, self.layers)
        if not self.lengths or min(sizes) < 1 or not self.seconds > 0:
            raise ValueError("lengths (one at least), tokens, width and layers must be >= 1 and seconds > 0")
        uneven = [length for length in self.lengths if self.tokens % length]
        if uneven:
            raise ValueError(
                f"tokens {self.tokens} must be a multiple of each length, so that every length trains as many; "
                f"it is not of {', '.join(map(str, uneven))}"
            )


DEFAULTS = {
    "cuda": Sizes(lengths=(512, 1024, 2048, 4096, 8192, 16384), tokens=65_536, arithmetic="bf16"),
    "cpu": Sizes(lengths=(32, 64, 128), tokens=256, arithmetic="float32", width=64, layers=4),
}
"""By the device's type."""

SET_UP = {"cuda": WARM_UP, "cpu": 1}
"""Steps before the clock starts."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One measurement: median, least and most over `steps` timed steps, peak memory, how steps were made, and what
    there is to say; without numbers where there are none."""

    model: str
    length: int
    rows: int
    tokens_per_second: float | None = None
    least: float | None = None
    most: float | None = None
    step_seconds: float | None = None
    steps: int = 0
    peak_gib: float | None = None
    parameters: int | None = None
    made: str = ""
    note: str = ""


def head(device: torch.device, sizes: Sizes) -> str:
    """What is measured, and the table's first line."""
    return "\n".join(
        [
            f"Training, tokens a second by context length: {sizes.layers} layers of width {sizes.width}, "
            f"{sizes.arithmetic}, AdamW,",
            f"{TASK.group} words (vocabulary {TASK.vocab_size}), {sizes.tokens:,} tokens a step; "
            f"{place_of(device)}",
            "Median of the steps made in about "
            f"{sizes.seconds:g} s, below it least–most; rows are drawn beforehand",
            heading(f"{length:,}" for length in sorted(sizes.lengths)),
        ]
    )


def measured(
    device: torch.device, names: Sequence[str] | None, sizes: Sizes
) -> Iterator[tuple[list[Speed], str]]:
    """Each model's measurements and its lines of the table, as soon as they are made.

    `names` None is all of MODEL_NAMES. Raises ValueError for what cannot be asked, at once; a model that fails is a
    row that says why.
    """

    def measure(name: str) -> tuple[list[Speed], str]:
        speeds = speeds_of(device, name, sizes)
        return speeds, block(name, [_cell(speed) for speed in speeds])

    return model_by_model(device, names, sizes, measure)


def speeds_of(device: torch.device, name: str, sizes: Sizes) -> list[Speed]:
    """One model at each length. After a length whose step takes longer than `seconds`, longer ones are left out."""
    speeds: list[Speed] = []
    for length in sorted(sizes.lengths):
        slow = [speed for speed in speeds if (speed.step_seconds or 0) > sizes.seconds]
        if slow:
            note = f"left out, as a step at {slow[0].length:,} took {slow[0].step_seconds:.1f} s: allow more --seconds"
            speeds.append(Speed(model=name, length=length, rows=sizes.tokens // length, note=note))
        else:
            speeds.append(_speed(device, name, length, sizes))
    return speeds


def _speed(device: torch.device, name: str, length: int, sizes: Sizes) -> Speed:
    rows = sizes.tokens // length
    what: dict[str, Any] = {"model": name, "length": length, "rows": rows}
    try:
        start_afresh(device)
        with noted() as notes:
            learner = _learner(name, length, rows, sizes).to(device)
            steps = learner.whole_steps(learner.configure_optimizers())
            batch = learner.rows(0)
            for _ in range(SET_UP[device.type]):
                steps.make(batch, learner.seed_of_lane_R)
            spread = timed(lambda: steps.make(batch, learner.seed_of_lane_R), device, sizes.seconds)
    except Exception as error:
        return Speed(**what, note=sentence(error))
    peak = torch.cuda.max_memory_reserved(device) / 2**30 if device.type == "cuda" else None
    return Speed(
        **what,
        tokens_per_second=sizes.tokens / spread.median,
        least=sizes.tokens / spread.most,
        most=sizes.tokens / spread.least,
        step_seconds=spread.median,
        steps=spread.runs,
        peak_gib=peak,
        parameters=learner.population.parameters_per_lane,
        made=steps.way,
        note="; ".join(notes),
    )


def _learner(name: str, length: int, rows: int, sizes: Sizes) -> Learner:
    training = TrainingSettings(
        length=length,
        steps=1,
        batch=rows,
        schedule="constant",
        arithmetic=cast(Arithmetic, sizes.arithmetic),
    )
    lane = Lane(seed=0, optimiser=OptimiserSettings(learning_rate=1e-3))
    model = model_named(name, sizes.width, sizes.layers)
    return Learner(TASK, model, [lane], training, EvaluationSettings())


def tail(speeds: Iterable[Speed]) -> str:
    """What one M²RNN layer costs the hybrid, the way steps were made, and what went wrong."""
    speeds = list(speeds)
    of = {(speed.model, speed.length): speed.tokens_per_second for speed in speeds}
    shares = {
        length: after / before
        for (model, length), after in of.items()
        if model == HYBRID_M2RNN and after and (before := of.get((HYBRID, length)))
    }
    lines = []
    if shares:
        told = ", ".join(f"{share:.1%} at {length:,}" for length, share in shares.items())
        lines.append(f"The hybrid with its first layer an M²RNN has {told} of the hybrid's tokens a second.")
    noted_at = ((speed.model, f"{speed.length:,}", speed.note) for speed in speeds)
    return "\n".join([*lines, *remarks((speed.made for speed in speeds), noted_at)])


def plain(speeds: Iterable[Speed], sizes: Sizes, device: torch.device) -> list[dict[str, Any]]:
    """A tidy row for each measurement, with the sizes and the place at which it was made."""
    return rows_of(speeds, sizes, ("tokens", "arithmetic", "width", "layers"), device)


def _cell(speed: Speed) -> Cell:
    return cell_of(speed.tokens_per_second, speed.least, speed.most, speed.steps, short)
