"""What a study's cells would take: parameters, floats of state, memory, and hours from a few timed steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from statelab.models.backbone import Backbone
from statelab.models.learner import Learner
from statelab.sweeps.cells import Cell
from statelab.sweeps.fitting import memory_of
from statelab.sweeps.progress import duration

TIMED_STEPS = 3
SET_UP_STEPS = 3
"""Steps of a captured population that are not timed: two launched bit by bit, one that is recorded."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Measured seconds of one optimiser step, and of one evaluation at the training length, of a population."""

    lanes: int
    step: float
    evaluation: float


def size_lines(cells: tuple[Cell, ...], max_lanes: int, device: torch.device, timed: bool) -> Iterator[str]:
    """A line for each cell, as it is found; with `timed`, a few steps of each are made and its hours on one worker
    told."""
    whole = 0.0
    for cell in cells:
        with torch.random.fork_rng(devices=[]):
            model = Backbone(cell.model, cell.task.vocab_size)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        state = model.state_size
        lanes = min(max_lanes, len(cell.lanes))
        parts = [
            f"{parameters:,} parameters",
            "state grows with length" if state is None else f"state {state:,}",
            f"{lanes} lanes at once",
            memory_of(cell, lanes, device),
        ]
        if timed:
            seconds = predicted_seconds(cell, pace_of(cell, lanes, device))
            whole += seconds
            parts.append(f"about {duration(seconds)}")
        yield f"  {cell.label}: {', '.join(parts)}"
    if timed:
        yield f"about {duration(whole)} in all on one worker ({device}), by {TIMED_STEPS} timed steps of each"


def pace_of(cell: Cell, lanes: int, device: torch.device) -> Pace:
    """Train the first lanes of a cell for a few steps, of which the first ones are not counted, and evaluate once."""
    learner = Learner(cell.task, cell.model, cell.lanes[:lanes], cell.training, cell.evaluation).to(device)
    learner.execution = replace(learner.execution, compile="off")
    steps = learner.whole_steps(learner.configure_optimizers())
    # A step is captured after two of its shape; lengths that a curriculum draws are seldom seen so often here.
    first = SET_UP_STEPS if device.type == "cuda" else 1
    began = time.monotonic()
    for step in range(first + TIMED_STEPS):
        steps.make(learner.rows(min(step, cell.training.steps - 1)), learner.seed_of_lane_R)
        _finish(device)
        began = time.monotonic() if step == first - 1 else began
    stepped = time.monotonic()
    for piece in learner.val_dataloader():
        learner.validation_step(piece, 0)
    _finish(device)
    return Pace(lanes=lanes, step=(stepped - began) / TIMED_STEPS, evaluation=time.monotonic() - stepped)


def predicted_seconds(cell: Cell, pace: Pace) -> float:
    """Seconds that all lanes of a cell take on one worker: steps, evaluations, and tests by their tokens."""
    populations = math.ceil(len(cell.lanes) / pace.lanes)
    evaluations: float = math.ceil(cell.training.steps / cell.evaluation.every)
    evaluations += sum(_test_lengths(cell)) / cell.training.length
    return populations * (cell.training.steps * pace.step + evaluations * pace.evaluation)


def _test_lengths(cell: Cell) -> Iterator[float]:
    yield from cell.evaluation.test_lengths
    yield from ((low + high) / 2 for low, high in cell.evaluation.test_ranges)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
