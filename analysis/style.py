"""What the figures have in common: sizes, colours, guide lines, the range of an accuracy axis."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import wraps
from itertools import cycle
from typing import ParamSpec

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

P = ParamSpec("P")

_SIZES = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
_LABEL = 30
# The palette's pink and yellow are too pale for thin lines.
_STRONG = (0, 1, 2, 3, 4, 5, 7, 9)


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A drawing function that runs in our style and leaves the caller's as it was."""

    @wraps(draw)
    def run(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with sns.axes_style("whitegrid", {"grid.color": "0.9"}), sns.plotting_context("paper", rc=_SIZES):
            return draw(*args, **kwargs)

    return run


def guides(line: Callable[..., object], threshold: float, chance: float | None) -> None:
    """The threshold dashed and, if known, chance dotted; `line` is an axes' axhline or axvline."""
    line(threshold, color="0.35", ls="--", lw=0.8, zorder=1)
    if chance is not None:
        line(chance, color="0.35", ls=":", lw=1, zorder=1)


def colours_of(models: pd.Series) -> dict[str, str]:
    """A colour per model, in the order of appearance; they repeat after eight."""
    palette = sns.color_palette("colorblind").as_hex()
    return dict(zip(models.unique(), cycle(palette[i] for i in _STRONG), strict=False))


def lowest(accuracies: pd.Series, chance: float | None) -> float:
    """Where an accuracy axis begins: a little below chance and all values, at 0 where chance is not known."""
    least = min(float(accuracies.min()), chance or 0.0) if accuracies.notna().any() else chance or 0.0
    return float(max(np.floor(10 * least - 0.5) / 10, 0.0)) - 0.03


def count_seeds(seeds: pd.Series) -> str:
    """ "1 seed", "8 seeds"."""
    count = seeds.nunique()
    return "1 seed" if count == 1 else f"{count} seeds"


def wrapped(text: str) -> str:
    """A label broken over lines where it would crowd its neighbours."""
    return textwrap.fill(text, _LABEL)
