"""Measuring a population on fixed rows, in pieces that take less memory than a training step.

Legend: R lanes, S seeds of evaluation rows (1, or one a lane), B rows, T time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statelab.models.metrics import loss_sums, right_counts
from statelab.models.population import Population
from statelab.models.settings import EvaluationSettings, TrainingSettings
from statelab.tasks.rows import Rows, Split
from statelab.tasks.task import Task

MIN_TOKENS = 65_536
"""Tokens of all lanes that a piece may have however small the training batch is."""


class Piece(NamedTuple):
    """Rows [start, start + rows) of an evaluation at one length."""

    length: int
    start: int
    rows: int
    last: bool


@dataclass
class Measurement:
    """An evaluation of every lane, as plain numbers: lists have one entry a lane."""

    step: int
    length: int
    accuracy: list[float]
    loss: list[float]
    train_loss: list[float]

    def plain(self) -> dict[str, Any]:
        """As a dict of numbers and lists, for checkpoints and records."""
        return asdict(self)


class Counts:
    """Running sums of one evaluation, kept on the device until it is closed."""

    def __init__(self) -> None:
        self._sums: list[Tensor] | None = None

    def add(self, right_R: Tensor, scored_R: Tensor, loss_R: Tensor) -> None:
        """Add a piece: right answers, scored positions and summed loss of each lane."""
        new = [right_R, scored_R, loss_R.double()]
        self._sums = new if self._sums is None else [a + b for a, b in zip(self._sums, new, strict=True)]

    def close(self, step: int, length: int, train_loss: list[float]) -> Measurement:
        """The measurement of all pieces added."""
        assert self._sums is not None, "an evaluation without rows"
        right, scored, loss = (value.double().cpu() for value in self._sums)
        accuracy, mean_loss = (right / scored).tolist(), (loss / scored).tolist()
        return Measurement(step, length, accuracy, mean_loss, train_loss)


class Evaluation:
    """The fixed rows on which the lanes of a population are measured."""

    def __init__(
        self, task: Task, seeds: Sequence[int], training: TrainingSettings, settings: EvaluationSettings
    ) -> None:
        self._task = task
        self._seeds_S = torch.tensor(list(seeds) if settings.per_seed else [settings.seed])
        self._rows = settings.rows
        self._tokens = max(4 * training.batch * training.length, MIN_TOKENS // len(seeds))

    def pieces(self, length: int) -> Pieces:
        """The evaluation's rows at one length, cut into pieces that keep few enough tokens in flight.

        Nothing is saved for a backward pass, so a piece may have a few times a training batch's tokens.
        """
        size = max(1, self._tokens // length)
        starts = range(0, self._rows, size)
        return Pieces(Piece(length, s, min(size, self._rows - s), s + size >= self._rows) for s in starts)

    def measure(self, population: Population, piece: Piece, split: Split, counts: Counts) -> None:
        """Add one piece to `counts`: shared rows are read by every lane, a seed's own by its lane alone."""
        rows = Rows.span(self._seeds_S.to(population.flat.device), split, piece.start, piece.rows)
        batch = self._task.sample(rows, piece.length)
        inputs, targets = (t.expand(population.lanes, -1, -1) for t in (batch.inputs, batch.targets))
        logits = population(inputs)
        counts.add(*right_counts(logits, targets), loss_sums(logits, targets))


class Pieces:
    """A loader of pieces that Lightning takes as one loader (a plain list it would take for many)."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = tuple(pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)
