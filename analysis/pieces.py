"""What a report is made of: a piece is a table, a figure, or both, under one name and with a word on how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from statelab.analysis.findings import Findings
from statelab.analysis.layout import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CELLS = 8
"""A figure with panels shows no more (task, model) pairs than this; the tables have them all."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """`table` is NAME.csv, `sections` and `notes` its words, `draw` makes its figure; a part it lacks is empty."""

    name: str
    title: str
    about: str
    table: pd.DataFrame | None = None
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()
    draw: Callable[[], Figure] | None = None


def shown_cells(found: Findings) -> Findings:
    """The findings with no more (task, model) pairs than a figure of panels shows."""
    if len(found.chosen) <= MOST_CELLS:
        return found
    chosen = found.chosen.head(MOST_CELLS)
    kept = chosen[["task", "model"]]
    frames = ("lanes", "lengths", "ranges", "curves", "metrics", "times")
    fewer = {name: getattr(found, name).merge(kept, on=["task", "model"]) for name in frames}
    return replace(found, chosen=chosen, **fewer)


def drawn_by(module: str, function: str, *args: Any, **options: Any) -> Callable[[], Figure]:
    """A figure yet to be drawn: what it is drawn with is imported only then, since seaborn takes seconds."""

    def draw() -> Figure:
        figure: Figure = getattr(import_module(f"statelab.analysis.{module}"), function)(*args, **options)
        return figure

    return draw


def cut_note(found: Findings) -> tuple[str, ...]:
    cells = len(found.chosen)
    if cells <= MOST_CELLS:
        return ()
    return (f"The figure shows the first {MOST_CELLS} of {cells} models on tasks; the table has them all.",)
