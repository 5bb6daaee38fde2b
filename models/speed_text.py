"""Tables of measurements as text: a column each, the range beneath the median."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

NAME, COLUMN = 25, 13


class Cell(NamedTuple):
    """What stands in a column: the median, and beneath it the range."""

    median: str
    spread: str


def cell_of(
    median: float | None, least: float | None, most: float | None, runs: int, told: Callable[[float], str]
) -> Cell:
    """A cell of numbers as `told` writes them; a dash where there are none, no range of a single run."""
    if median is None or least is None or most is None:
        return Cell("–", "")
    return Cell(told(median), f"{told(least)}–{told(most)}" if runs > 1 else "one run")


def error_cell(errors: Sequence[float]) -> Cell:
    """A cell of the worst of some errors; NaN is worse than any."""
    worst = max(errors, key=lambda error: (error != error, error), default=None)
    return Cell("–" if worst is None else f"{worst:.0e}" if worst else "0", "")


def heading(columns: Iterable[str]) -> str:
    """The table's first line."""
    return f"{'':{NAME}}" + "".join(f"{column:>{COLUMN}}" for column in columns)


def block(name: str, cells: Sequence[Cell], behind: str = "") -> str:
    """A row of the table in two lines; `behind` stands after its columns."""
    first = f"{name:<{NAME}}" + "".join(f"{cell.median:>{COLUMN}}" for cell in cells) + behind
    second = f"{'':{NAME}}" + "".join(f"{cell.spread:>{COLUMN}}" for cell in cells)
    return f"{first.rstrip()}\n{second.rstrip()}".rstrip()


def remarks(made: Iterable[str], told: Iterable[tuple[str, str, str]]) -> list[str]:
    """What stands behind a table: how steps were `made`, then a line for each note of (model, column, note)."""
    ways = dict.fromkeys(filter(None, made))
    return [*([f"Steps: {', '.join(ways)}."] if ways else []), *_notes(told)]


def _notes(told: Iterable[tuple[str, str, str]]) -> list[str]:
    """A model's columns of one note stand together."""
    places: dict[tuple[str, str], list[str]] = {}
    for model, column, note in told:
        if note:
            places.setdefault((model, note), []).append(column)
    return [f"{model} at {', '.join(columns)}: {note}" for (model, note), columns in places.items()]


def short(number: float) -> str:
    """Three digits: 0.123, 12.3, 1.23k, 1.23M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * unit:
            return f"{digits(number / unit)}{letter}"
    return digits(number)


def digits(number: float) -> str:
    """Three digits, without an exponent."""
    size = abs(number)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{number:.{places}f}"


def check_choices(kind: str, asked: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError for a word that is not among the known ones."""
    for word in asked:
        if word not in known:
            raise ValueError(f"unknown {kind} {word!r}; known: {', '.join(known)}")
