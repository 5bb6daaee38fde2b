"""Measuring a population on fixed rows, in pieces that take less memory than a training step.

Legend: R lanes, S seeds of evaluation rows (1, or one a lane), B rows, T time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from statelab.models.metrics import METRICS, Counted, accuracy, loss_sums, right_answers
from statelab.models.population import Population
from statelab.models.settings import EvaluationSettings, TrainingSettings
from statelab.tasks.rows import Rows, Split
from statelab.tasks.task import Task

MIN_TOKENS = 65_536
"""Tokens of all lanes that a piece may have however small the training batch is."""


RANGE_LENGTHS = 32
"""Lengths, spread evenly over its range, at which a test over a range of lengths is made."""


class Piece(NamedTuple):
    """Rows [start, start + rows) of an evaluation at one length; `closes` is the span that ends with it."""

    length: int
    start: int
    rows: int
    closes: Span | None


class Span(NamedTuple):
    """What an evaluation is made over: one length, or the lengths shortest .. length."""

    shortest: int
    length: int


@dataclass
class Measurement:
    """An evaluation of every lane, as plain numbers: lists have one entry a lane.

    `metrics` has, for each metric asked for, N numbers a lane; None where a number had no trials.
    """

    step: int
    length: int
    accuracy: list[float]
    loss: list[float]
    train_loss: list[float]
    shortest: int | None = None
    metrics: dict[str, list[list[float | None]]] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As a dict of numbers and lists, for checkpoints and records."""
        return asdict(self)


class Counts:
    """Running sums of one evaluation, kept on the device until it is closed."""

    def __init__(self) -> None:
        self._loss_R: Tensor | float = 0.0
        self._counted: dict[str, Counted] = {}

    def add(self, loss_R: Tensor, counted: dict[str, Counted]) -> None:
        """Add a piece: summed loss of each lane, hits and trials of each metric."""
        self._loss_R = loss_R.double() + self._loss_R
        for name, (hits, trials) in counted.items():
            before = self._counted.get(name)
            self._counted[name] = (
                (hits, trials) if before is None else (_sum(before[0], hits), _sum(before[1], trials))
            )

    def close(self, step: int, test: Span, train_loss: list[float]) -> Measurement:
        """The measurement of all pieces added."""
        assert self._counted, "an evaluation without rows"
        quotients = {
            name: [
                [hit / trial if trial else None for hit, trial in zip(*lane, strict=True)]
                for lane in zip(hits.tolist(), trials.tolist(), strict=True)
            ]
            for name, (hits, trials) in self._counted.items()
        }
        scored_R = self._counted["accuracy"][1][:, 0]
        return Measurement(
            step=step,
            length=test.length,
            shortest=None if test.shortest == test.length else test.shortest,
            accuracy=[lane[0] or 0.0 for lane in quotients.pop("accuracy")],
            loss=(torch.as_tensor(self._loss_R) / scored_R).tolist(),
            train_loss=train_loss,
            metrics=quotients,
        )


class Evaluation:
    """The fixed rows on which the lanes of a population are measured."""

    def __init__(
        self, task: Task, seeds: Sequence[int], training: TrainingSettings, settings: EvaluationSettings
    ) -> None:
        self._task, self._settings = task, settings
        self._seeds_S = torch.tensor(list(seeds) if settings.per_seed else [settings.seed])
        self._tokens = max(4 * training.batch * training.length, MIN_TOKENS // len(seeds))

    def pieces(self, length: int, shortest: int | None = None) -> Pieces:
        """The evaluation's rows at one length, or in equal shares at lengths spread evenly over a range.

        They are cut into pieces that keep few enough tokens in flight. Nothing is saved for a backward pass, so a
        piece may have a few times a training batch's tokens.
        """
        test = Span(length if shortest is None else shortest, length)
        return Pieces(list(self._cut(test)))

    def _cut(self, test: Span) -> Iterator[Piece]:
        rows = self._settings.rows
        lengths = self._lengths(test)
        edges = [rows * i // len(lengths) for i in range(len(lengths) + 1)]
        for length, first, end in zip(lengths, edges, edges[1:], strict=False):
            size = self.rows_of_piece(length)
            for start in range(first, end, size):
                count = min(size, end - start)
                yield Piece(length, start, count, test if start + count == rows else None)

    def rows_of_piece(self, length: int) -> int:
        """Rows of a piece at one length, at most."""
        return max(1, self._tokens // length)

    def _lengths(self, test: Span) -> list[int]:
        if test.shortest == test.length:
            return [test.length]
        possible = [n for n in range(test.shortest, test.length + 1) if is_length(self._task, n)]
        count = min(RANGE_LENGTHS, self._settings.rows, len(possible))
        return [possible[(2 * i + 1) * len(possible) // (2 * count)] for i in range(count)]

    def measure(self, population: Population, piece: Piece, split: Split, counts: Counts) -> None:
        """Add one piece to `counts`: shared rows are read by every lane, a seed's own by its lane alone."""
        rows = Rows.span(self._seeds_S.to(population.flat.device), split, piece.start, piece.rows)
        batch = self._task.sample(rows, piece.length)
        inputs, targets = (t.expand(population.lanes, -1, -1) for t in (batch.inputs, batch.targets))
        logits = population(inputs)
        right = right_answers(logits, targets)
        measured = {"accuracy": accuracy(right, batch)}
        if split == "test":
            measured |= {name: METRICS[name](right, batch) for name in self._settings.metrics}
        # Counts of rows that all lanes share are made once.
        whole = {name: (hits, trials.expand_as(hits)) for name, (hits, trials) in measured.items()}
        counts.add(loss_sums(logits, targets), whole)


class Pieces:
    """A loader of pieces that Lightning takes as one loader (a plain list it would take for many)."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)


def is_length(task: Task, length: int) -> bool:
    """Whether a task has rows of this length."""
    try:
        task.check_length(length)
    except ValueError:
        return False
    return True


def _sum(a_RN: Tensor, b_RM: Tensor) -> Tensor:
    """The sum of two counts, the shorter one filled up with zeros."""
    size = max(a_RN.shape[1], b_RM.shape[1])
    a_RN, b_RM = (pad(counts, (0, size - counts.shape[1])) for counts in (a_RN, b_RM))
    return a_RN + b_RM
