"""Rows of tokens cut into the lines of a picture, and where these stand.

Legend: B rows, T tokens; heights and places in cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST_WRITTEN = 48
"""Rows of more tokens than this show colours alone."""

Ids = npt.NDArray[np.int64]

WIDTH = 9.6
"""Inches of the longest line."""

_LEAST_CELL, _CELL = 0.2, 0.26
_LETTER = 0.06
"""Inches of a letter that can still be read."""

_FOLDS = ((1024, 64), (4096, 128))
_LONGEST_LINE = 256
"""Longer rows, of up to the first numbers, stand in lines of up to the second ones."""

_BENEATH, _GAP = 0.85, 0.55


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row or a piece of one: its number, its first token's place in the row, its height, its ids `[n]`."""

    row: int
    start: int
    top: float
    inputs: Ids
    targets: Ids

    @property
    def tokens(self) -> list[tuple[int, int]]:
        """(place in the line, token) of every token."""
        return list(enumerate(self.inputs.tolist()))

    @property
    def answers(self) -> list[tuple[int, int]]:
        """(place in the line, target) of what is scored."""
        return [(t, target) for t, target in enumerate(self.targets.tolist()) if target >= 0]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Lines, tokens of the longest, inches of a cell, height of all lines, and of what is beneath each."""

    lines: tuple[Line, ...]
    width: int
    cell: float
    height: float
    beneath: float

    @property
    def cell_height(self) -> float:
        """Inches, not less than of a cell that is wide enough to be read."""
        return max(self.cell, _LEAST_CELL)


def checked(inputs: Any, targets: Any, kinds: Mapping[str, range]) -> tuple[Ids, Ids]:
    """Both as arrays `[B, T]`; ValueError for other shapes, or for tokens that no kind has."""
    inputs_BT, targets_BT = (np.asarray(ids, dtype=np.int64) for ids in (inputs, targets))
    if inputs_BT.ndim != 2 or not inputs_BT.size or inputs_BT.shape != targets_BT.shape:
        raise ValueError(
            f"rows_figure: inputs and targets must both be [rows, T], got {list(inputs_BT.shape)} and "
            f"{list(targets_BT.shape)}"
        )
    stop = max((ids.stop for ids in kinds.values()), default=0)
    low, high = int(inputs_BT.min()), int(max(inputs_BT.max(), targets_BT.max()))
    if low < 0 or high >= stop:
        raise ValueError(f"rows_figure: tokens {low} … {high} are shown, and kinds are of 0 … {stop - 1}")
    return inputs_BT, targets_BT


def laid_out(inputs_BT: Ids, targets_BT: Ids, letters: int | None) -> Layout:
    """Every row cut into lines of about the same size; `letters` of the longest word, None to write none."""
    T = inputs_BT.shape[1]
    least = _LEAST_CELL if letters is None else max(_LEAST_CELL, _LETTER * letters)
    most = int(WIDTH / least + 1e-9)
    if letters is None:
        most = next((line for longest, line in _FOLDS if longest >= T), _LONGEST_LINE)
    width = -(-T // -(-T // most))
    beneath = 0.35 if letters is None else _BENEATH
    starts, height = range(0, T, width), 1 + beneath + _GAP
    # Half a line more keeps rows apart where each has several lines.
    block = len(starts) * height + (0.0 if len(starts) == 1 else height / 2)
    lines = [
        Line(
            row=row,
            start=start,
            top=row * block + i * height,
            inputs=inputs_BT[row, start : start + width],
            targets=targets_BT[row, start : start + width],
        )
        for row in range(len(inputs_BT))
        for i, start in enumerate(starts)
    ]
    cell = min(WIDTH / width, max(_CELL, least))
    return Layout(
        lines=tuple(lines), width=width, cell=cell, height=lines[-1].top + height - _GAP, beneath=beneath
    )


def alt_text(inputs_BT: Ids, targets_BT: Ids, kinds: Mapping[str, range], name: str) -> str:
    """The picture of these rows in a sentence."""
    rows, T = inputs_BT.shape
    counts = ", ".join(f"{_count(inputs_BT, ids)} {kind}" for kind, ids in kinds.items())
    several, scored = "row" if rows == 1 else "rows", int((targets_BT >= 0).sum())
    return (
        f"{name}: {rows} {several} of {T} tokens as cells coloured by kind ({counts}); {scored} of {rows * T} "
        f"positions are scored and framed, with their answers beneath."
    )


def _count(inputs_BT: Ids, ids: range) -> int:
    return int(((inputs_BT >= ids.start) & (inputs_BT < ids.stop)).sum())
