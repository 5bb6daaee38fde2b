"""Training rows of the steps to come, made for several steps at once.

A task's sampling is many small operations, whose cost hardly grows with the rows of a few steps. Rows do not depend
on what else is drawn with them, so this changes no row. Legend: S seeds, B rows, T time.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from statelab.models.settings import TrainingSettings
from statelab.tasks.batch import Batch
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task

MAX_STEPS = 32
"""Steps whose rows are made at once; of steps that differ in length, so many of each length."""

WINDOW = 128
"""How far ahead steps of one length are looked for where lengths differ."""

ROW_TENSORS = 4
"""Tensors of 8 bytes a token that most tasks' rows have: inputs, targets, loss targets, distances."""

MAX_TOKENS = {"cpu": 1 << 20, "cuda": 1 << 25}
"""The steps ahead have at most so many tokens of all seeds, 8 bytes each in a few tensors: caches are small, cards
are not."""


class Stream:
    """Batches `[S, B, T]` of each step for S seeds, drawn for several steps of one length at a time."""

    def __init__(self, task: Task, training: TrainingSettings) -> None:
        self._task, self._training = task, training
        self._made: dict[int, tuple[list[int], Batch]] = {}
        """For each length: the steps whose rows there are, and the rows, a step's behind another's."""
        self._device: object = None

    def batch(self, step: int, seeds_S: Tensor) -> Batch:
        """Rows [step·B, (step + 1)·B) of each seed's training split."""
        if self._device != seeds_S.device:
            self._made, self._device = {}, seeds_S.device
        length = self._training.length_at(step)
        steps, rows = self._made.get(length, ([], None))
        if rows is None or step not in steps:
            self._made = {n: kept for n, kept in self._made.items() if kept[0][-1] > step and n != length}
            steps = self._alike(step, length, seeds_S)
            rows = self._sample(steps, length, seeds_S)
            self._made[length] = steps, rows
        size = self._training.batch
        start = steps.index(step) * size
        kept = {name: getattr(rows, name) for name in Batch.__dataclass_fields__}
        cut = {name: part.narrow(1, start, size) for name, part in kept.items() if part is not None}
        return replace(rows, **cut)

    def _sample(self, steps: list[int], length: int, seeds_S: Tensor) -> Batch:
        size, device = self._training.batch, seeds_S.device
        # One range a step: a list of numbers would have to be copied to the device, which waits for it.
        ranges = [torch.arange(step * size, (step + 1) * size, device=device) for step in steps]
        return self._task.sample(Rows(seeds_S, "train", torch.cat(ranges)), length)

    def _alike(self, step: int, length: int, seeds_S: Tensor) -> list[int]:
        """This step and others soon after it that have its length."""
        window = steps_ahead(self._training, len(seeds_S), seeds_S.device.type)
        soon = range(step, min(step + window, self._training.steps))
        alike = [n for n in soon if self._training.length_at(n) == length]
        return alike[:MAX_STEPS] or [step]


def steps_ahead(training: TrainingSettings, seeds: int, device_type: str) -> int:
    """How many steps' rows there are at once, at most."""
    longest = max((n for stage in training.stages for n in stage.lengths), default=training.length)
    room = MAX_TOKENS.get(device_type, MAX_TOKENS["cpu"])
    ahead = room // (seeds * training.batch * longest)
    return min(max(1, ahead), WINDOW if training.stages else MAX_STEPS)


def of_lanes(batch: Batch, seed_of_lane_R: Tensor) -> Batch:
    """The batch `[R, B, T]` of each lane, from that of each different seed."""
    parts = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
    chosen = {name: part.index_select(0, seed_of_lane_R) for name, part in parts.items() if part is not None}
    return replace(batch, **chosen)
