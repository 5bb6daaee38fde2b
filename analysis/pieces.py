"""What a report is made of: a piece is a table, a figure, or both, under one name and with a word on how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from statelab.analysis.findings import MOST_CELLS, Findings
from statelab.analysis.layout import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def drawn_by(module: str, function: str, *args: Any, **options: Any) -> Callable[[], Figure]:
    """A figure yet to be drawn, by another process perhaps; what draws it is imported only then."""
    return partial(_figure, module, function, *args, **options)


def _figure(module: str, function: str, *args: Any, **options: Any) -> Figure:
    figure: Figure = getattr(import_module(f"statelab.analysis.{module}"), function)(*args, **options)
    return figure


def cut_note(found: Findings) -> tuple[str, ...]:
    cells = len(found.chosen)
    if cells <= MOST_CELLS:
        return ()
    return (f"The figure shows the first {MOST_CELLS} of {cells} models on tasks; the table has them all.",)
