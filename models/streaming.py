"""Reading one very long sequence through a model's state, in memory that does not grow with it.

Legend: B streams, T tokens of a piece, D decades, G answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from statelab.models.backbone import Backbone
from statelab.tasks.cycle_navigation import CycleNavigation
from statelab.tasks.group_word import GroupWord
from statelab.tasks.groups import cayley_table
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task


class Running(NamedTuple):
    """How answers over two stretches make the answer over both: `table[a][b]`, answers counted from token
    `first`."""

    first: int
    table: Sequence[Sequence[int]]


@runtime_checkable
class Streamable(Protocol):
    """A task of one's own whose answer after every token is that of the tokens so far."""

    def running(self) -> Running:
        """How its answers add up."""


@dataclass(frozen=True, kw_only=True)
class Decade:
    """Accuracy over positions `first` to `last`, counted from 1, of all streams."""

    first: int
    last: int
    accuracy: float


def stream_accuracy(
    model: Backbone, task: Task, *, seed: int = 0, total: int = 1_000_000, piece: int = 1024, streams: int = 1
) -> list[Decade]:
    """Accuracy of each decade (1-10, 11-100, …) of `streams` sequences of `total` tokens read by `piece`.

    What is kept is a piece, the model's state and two counts a decade. `pandas.DataFrame(...)` of the result
    is a table. Raises ValueError for a task whose answers do not add up (see `pieces`), sizes below 1, and a
    model whose state grows or has no known size.
    """
    if model.state_size is None:
        raise ValueError(
            "stream_accuracy: this model's state grows with the sequence or has no known size; use layers with a "
            "state_size (attention has none)"
        )
    lasts = _lasts(total)
    bounds_D = torch.tensor(lasts)
    right_D = torch.zeros(len(lasts), dtype=torch.int64)
    state, start = None, 1
    with torch.no_grad():
        for inputs_BT, targets_BT in pieces(task, seed, total, piece, streams, model.head.weight.device):
            logits_BTV, state = model(inputs_BT, state)
            right_T = (logits_BTV.argmax(dim=-1) == targets_BT).sum(dim=0).cpu()
            position_T = torch.arange(start, start + len(right_T))
            right_D.index_add_(0, torch.bucketize(position_T, bounds_D), right_T)
            start += len(right_T)
    firsts = [1, *(last + 1 for last in lasts[:-1])]
    return [
        Decade(first=first, last=last, accuracy=int(right) / ((last - first + 1) * streams))
        for first, last, right in zip(firsts, lasts, right_D, strict=True)
    ]


def pieces(
    task: Task, seed: int, total: int, piece: int, streams: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets `[B, T]` of endless rows, T = `piece` but for the last.

    A stream is made of the task's own test rows of length `piece`, one behind the other, each one's answers put
    behind those so far. So `task` must be one whose running answers add up: parity, group_word or
    cycle_navigation with an answer after every token, or `Streamable`. Raises ValueError otherwise.
    """
    if min(total, piece, streams) < 1:
        raise ValueError(f"streaming: total {total}, piece {piece} and streams {streams} must be >= 1")
    rule = running(task)
    table_GG = torch.tensor(rule.table, device=device)
    so_far_B1: Tensor | None = None
    for number, start in enumerate(range(0, total, piece)):
        rows = Rows.span([seed], "test", number * streams, streams, device)
        batch = task.sample(rows, piece)
        answers_BT = batch.targets[0] - rule.first
        if so_far_B1 is not None:
            answers_BT = table_GG[so_far_B1, answers_BT]
        so_far_B1 = answers_BT[:, -1:].clone()
        kept = min(piece, total - start)
        yield batch.inputs[0, :, :kept], answers_BT[:, :kept] + rule.first


def running(task: Task) -> Running:
    """How a task's answers add up. Raises ValueError, naming what does, for one whose do not."""
    match task:
        case Streamable():
            return task.running()
        case Parity(answer="running"):
            digits = range(task.modulus)
            return Running(0, [[(a + b) % task.modulus for b in digits] for a in digits])
        case GroupWord(peer_compat=False):
            return Running(0, cayley_table(task.group))
        case CycleNavigation(answer="running", min_length=None):
            places = range(task.cycle)
            return Running(
                task.kinds["place"].start, [[(a + b) % task.cycle for b in places] for a in places]
            )
    raise ValueError(
        f"streaming: the answers of {task} do not add up from piece to piece; use parity or cycle_navigation with "
        "answer='running' and no min_length, group_word without peer_compat, or a task with a method running()"
    )


def _lasts(total: int) -> list[int]:
    """The last position of each decade."""
    lasts = [10]
    while lasts[-1] < total:
        lasts.append(10 * lasts[-1])
    return [*lasts[:-1], total]
