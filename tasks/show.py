"""Rows of a task as a person would write them: `statelab tasks show`, and the docstrings of the tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from textwrap import wrap
from typing import TYPE_CHECKING

from statelab.tasks.batch import IGNORE, Batch

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.task import Task

WIDTH = 100
_INDENT = "    "
_LABEL = 6
_NOTHING = "·"


def show(task: Task, length: int, rows: int = 4, seed: int = 0) -> str:
    """The first training rows of a seed: tokens, beneath each what is scored there (· for nothing), and how
    many tokens ago a query's key was last shown. Lines are at most 100 columns wide.

    Raises ValueError for a length that the task cannot have.
    """
    from statelab.tasks.rows import Rows

    batch = task.sample(Rows.span([seed], "train", 0, rows), length)
    legend = [_name(task, length), *_legend(task, batch)]
    return "\n\n".join(["\n".join(legend), *(_row(task, batch, i) for i in range(rows))]) + "\n"


def _name(task: Task, length: int) -> str:
    """The task with the settings that are not its defaults."""
    settings = [
        f"{f.name}={getattr(task, f.name)!r}" for f in fields(task) if getattr(task, f.name) != f.default
    ]
    return f"{type(task).__name__}({', '.join(settings)}) at {length}"


def _legend(task: Task, batch: Batch) -> list[str]:
    kinds = [_kind(task, kind, ids) for kind, ids in task.kinds.items()]
    scored = batch.targets != IGNORE
    everywhere = bool((batch.loss_targets != batch.targets).any())
    loss = "the next token at every position" if everywhere else "what is scored"
    share = f"{int(scored.sum())} of {scored.numel()} positions below"
    chance = f"a guess among {task.num_answers} answers is right {100 / task.num_answers:.3g} % of the time"
    return [
        *_line("tokens", ", ".join(kinds)),
        *_line("scored", f"{share}; {chance}"),
        *_line("loss", f"on {loss}"),
    ]


def _kind(task: Task, kind: str, ids: range) -> str:
    first, last = ids[0], ids[-1]
    if first == last:
        return f"{kind} {task.describe(first)} = {first}"
    return f"{kind} {task.describe(first)}…{task.describe(last)} = {first}…{last}"


def _line(label: str, text: str) -> list[str]:
    head = f"{_INDENT}{label:<8}"
    return wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _row(task: Task, batch: Batch, i: int) -> str:
    lines = {
        "in": _cells(batch.inputs[0, i], task.describe),
        "out": _cells(batch.targets[0, i], task.describe),
    }
    if batch.distance is not None:
        lines["ago"] = _cells(batch.distance[0, i], str)
    wide = max(len(cell) for cells in lines.values() for cell in cells) + 1
    at_once = max(1, (WIDTH - len(_INDENT) - _LABEL) // wide)
    pieces = [
        "\n".join(_write(label, cells[start : start + at_once], wide) for label, cells in lines.items())
        for start in range(0, len(lines["in"]), at_once)
    ]
    return "\n\n".join(pieces)


def _cells(ids_T: Tensor, write: Callable[[int], str]) -> list[str]:
    return [_NOTHING if token == IGNORE else write(token) for token in ids_T.tolist()]


def _write(label: str, cells: list[str], wide: int) -> str:
    return f"{_INDENT}{label:<{_LABEL - 1}}" + "".join(cell.rjust(wide) for cell in cells)
