"""What the figures have in common: sizes, colours, guide lines, the range of an accuracy axis.

Drawn on Figure objects of their own, so no figure stays open in pyplot and no style of the caller's changes. What
matters is told by position, fill, marker and line style; colour only repeats which model it is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from itertools import cycle
from typing import Any, ParamSpec

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from statelab.analysis.whitegrid import PALETTE, STYLE

P = ParamSpec("P")

WIDTH = 4.6
"""Inches of a figure unless asked otherwise: a paper's column, and legible on a telephone's screen."""
PANEL = 2.2
"""Inches that a panel among several needs at least."""

_LABEL = 30
TITLE = 26
"""Letters of a line above a panel that has others abreast."""
# The palette's pink and yellow are too pale for thin lines.
_STRONG = (0, 1, 2, 3, 4, 5, 7, 9)
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS = "osD^vPX*"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a model is drawn everywhere in a study."""

    colour: str
    dash: Any
    marker: str


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A drawing function that runs in our style and leaves the caller's as it was."""

    @wraps(draw)
    def run(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return run


def new_figure(width: float, height: float, alt: str) -> Figure:
    """An empty figure of so many inches; `alt` says in words what it will show, and is its label."""
    # A little more room than is usual: a word's width differs between PNG, SVG and PDF.
    room = ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.05)
    figure = Figure(figsize=(width, height), layout=room)
    figure.set_label(alt)
    return figure


def panels(figure: Figure, count: int, **shared: Any) -> list[Axes]:
    """`count` axes, as many abreast as the figure's width has room for."""
    abreast = columns_of(count, figure.get_figwidth())
    grid = list(figure.subplots(-(-count // abreast), abreast, squeeze=False, **shared).ravel())
    for unused in grid[count:]:
        unused.remove()
    return grid[:count]


def columns_of(count: int, width: float) -> int:
    """How many of `count` panels stand abreast in `width` inches."""
    return max(1, min(count, int(width / PANEL + 1e-9)))


def guides(line: Callable[..., object], threshold: float, chance: float | None) -> None:
    """The threshold dashed and, if known, chance dotted; `line` is an axes' axhline or axvline."""
    line(threshold, color="0.35", ls="--", lw=0.8, zorder=1)
    if chance is not None:
        line(chance, color="0.35", ls=":", lw=1, zorder=1)


def looks_of(models: Iterable[str]) -> dict[str, Look]:
    """A colour, a marker and a dash per model, in the order of appearance; colours repeat after eight."""
    kinds = zip(cycle(PALETTE[i] for i in _STRONG), cycle(_DASHES), cycle(_MARKERS), strict=False)
    names = dict.fromkeys(models)
    return {
        name: Look(colour=colour, dash=dash, marker=marker)
        for name, (colour, dash, marker) in zip(names, kinds, strict=False)
    }


def model_legend(figure: Figure, looks: dict[str, Look], *, lines: bool, below: str = "") -> None:
    """The models' lines or markers above the panels, and beneath them a sentence on how to read it."""
    style: dict[str, Any] = {"lw": 1.8} if lines else {"lw": 0, "ms": 5}
    handles = [
        Line2D(
            [],
            [],
            color=look.colour,
            ls=look.dash if lines else "",
            marker="" if lines else look.marker,
            **style,
        )
        for look in looks.values()
    ]
    longest = max((len(name) for name in looks), default=1)
    columns = max(1, min(len(looks), int(figure.get_figwidth() / (0.075 * min(longest, _LABEL) + 0.5))))
    if below:
        reading(figure, below)
    figure.legend(
        handles,
        [wrapped(name) for name in looks],
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        handlelength=2.6,
    )


def reading(figure: Figure, text: str) -> None:
    """How to read the figure, beneath it, in lines that fit its width."""
    columns = int(figure.get_figwidth() * 16.5)
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, columns)]
    figure.supxlabel("\n".join(lines), fontsize=7.5, color="0.25")


def lowest(accuracies: pd.Series, chance: float | None) -> float:
    """Where an accuracy axis begins: a little below chance and all values, at 0 where chance is not known."""
    least = min(float(accuracies.min()), chance or 0.0) if accuracies.notna().any() else chance or 0.0
    return float(max(np.floor(10 * least - 0.5) / 10, 0.0)) - 0.03


def count_seeds(seeds: pd.Series) -> str:
    """ "1 seed", "8 seeds"."""
    count = seeds.nunique()
    return "1 seed" if count == 1 else f"{count} seeds"


def wrapped(text: str, letters: int = _LABEL) -> str:
    """A label broken over lines where it would crowd its neighbours."""
    return textwrap.fill(text, letters)


def short_number(value: float) -> str:
    """As little as says it: 512, 64k, 1M (binary where that is whole), 1.5k."""
    for unit, name in ((2**20, "M"), (1_000_000, "M"), (2**10, "k"), (1000, "k")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{name}"
    for power, name in ((1_000_000, "M"), (1000, "k")):
        if value >= 10 * power:
            return f"{value / power:.3g}{name}"
    return f"{value:g}"


def length_axis(axes: Axes, lengths: list[int]) -> None:
    """A logarithmic axis of lengths with ticks at those that were tested."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(_apart(lengths)))
    axes.xaxis.set_major_formatter(lambda x, _: short_number(round(x)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(lengths[0] / 1.2, lengths[-1] * 1.2))


def _apart(lengths: list[int]) -> list[int]:
    """The lengths that leave room for each other's labels, a sixth of the axis; the longest always."""
    least = np.log(lengths[-1] / lengths[0]) / 6
    kept = [lengths[-1]]
    for length in reversed(lengths[:-1]):
        if np.log(kept[-1] / length) >= least:
            kept.append(length)
    return kept
