"""Training rows of the steps to come, made for several steps at once.

A task's sampling is many small operations, whose cost hardly grows with the rows of a few steps. Rows do not depend
on what else is drawn with them, so this changes no row.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from statelab.models.settings import TrainingSettings
from statelab.tasks.batch import Batch
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task

MAX_STEPS = 32
MAX_TOKENS = {"cpu": 1 << 20, "cuda": 1 << 25}
"""A chunk has at most so many tokens of all seeds, 8 bytes each in a few tensors: caches are small, cards are not."""


class Stream:
    """Batches `[S, B, T]` of each step for S seeds, drawn a chunk of steps at a time where all have one length."""

    def __init__(self, task: Task, training: TrainingSettings) -> None:
        self._task, self._training = task, training
        self._first = self._steps = 0
        self._chunk: Batch | None = None
        self._device: object = None

    def batch(self, step: int, seeds_S: Tensor) -> Batch:
        """Rows [step·B, (step + 1)·B) of each seed's training split."""
        size = self._training.batch
        inside = self._first <= step < self._first + self._steps
        if self._chunk is None or not inside or self._device != seeds_S.device:
            self._first, self._steps, self._device = step, self._count(step, seeds_S), seeds_S.device
            rows = Rows.span(seeds_S, "train", step * size, self._steps * size)
            self._chunk = self._task.sample(rows, self._training.length_at(step))
        start = (step - self._first) * size
        kept = {name: getattr(self._chunk, name) for name in Batch.__dataclass_fields__}
        cut = {name: part.narrow(1, start, size) for name, part in kept.items() if part is not None}
        return replace(self._chunk, **cut)

    def _count(self, step: int, seeds_S: Tensor) -> int:
        if self._training.stages:
            return 1
        tokens = len(seeds_S) * self._training.batch * self._training.length
        room = MAX_TOKENS.get(seeds_S.device.type, MAX_TOKENS["cpu"])
        return max(1, min(MAX_STEPS, room // tokens, self._training.steps - step))
