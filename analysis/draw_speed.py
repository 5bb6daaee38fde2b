"""How fast models train, stream and decode: the figures of `statelab bench throughput` and `statelab bench decode`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import blended_transform_factory
from scipy.optimize import isotonic_regression

from statelab.analysis.style import (
    Look,
    length_axis,
    looks_of,
    new_figure,
    reading,
    styled,
)

SPEED_WIDTH = 6.4
"""Inches: lines have their names beside them."""
_PANEL = 3.6
_LETTERS = 7.5
"""Points of the names beside lines."""
_RANGE = "point: median · bar: least to most of the timings"
_STATE_MARKERS = "osD^vPX*"


@styled
def throughput_figure(speeds: pd.DataFrame, width: float = SPEED_WIDTH) -> Figure:
    """Training tokens a second against context length, both logarithmic, a line per model.

    `speeds` has model, length, tokens_per_second, least and most, empty where nothing was measured, and tokens.
    """
    told = _told(speeds, "tokens_per_second", " tokens/s")
    figure = new_figure(width, _PANEL + 0.6, f"Training speed against context length. {told}")
    axes = figure.subplots()
    draw_speed_panel(axes, speeds, ("tokens_per_second", "least", "most"), looks_of(speeds["model"]))
    axes.set(xlabel="context length", ylabel="training tokens a second")
    tokens = ", ".join(f"{int(number):,}" for number in speeds["tokens"].unique())
    reading(
        figure, f"{tokens} tokens a step at every length · {_RANGE}{_missing(speeds, 'tokens_per_second')}"
    )
    return figure


@styled
def sequence_figure(decodings: pd.DataFrame, width: float = SPEED_WIDTH) -> Figure:
    """Seconds to read a length, and to write as much behind it too, a line per model and a panel each.

    `decodings` has model, length, estimated, and prefill and both with their _least and _most, empty where nothing
    was measured.
    """
    told = [_told(decodings, what, " s") for what in ("prefill", "both")]
    alt = f"Seconds to read so many tokens: {told[0]} To read and write as many: {told[1]}"
    figure = new_figure(width, 2 * _PANEL + 0.4, alt)
    looks = looks_of(decodings["model"])
    titles = {"prefill": "reading L tokens", "both": "reading L tokens and writing L more"}
    for axes, (what, title) in zip(figure.subplots(2, 1), titles.items(), strict=True):
        draw_speed_panel(axes, decodings, (what, f"{what}_least", f"{what}_most"), looks)
        axes.set(title=title, xlabel="length L", ylabel="seconds")
    estimated = decodings.loc[decodings["estimated"].astype(bool), "model"].unique()
    growing = (
        f"\nwriting by {', '.join(estimated)}: summed from steps at three contexts" if len(estimated) else ""
    )
    reading(figure, f"{_RANGE}{growing}{_missing(decodings, 'both')}")
    return figure


@styled
def step_figure(latencies: pd.DataFrame, width: float = SPEED_WIDTH) -> Figure:
    """Microseconds of one streaming step, logarithmic: a row per layer, a point per arithmetic and state width.

    `latencies` has model, arithmetic, state (empty where a layer has no width of states), seconds, least and most.
    """
    models = list(latencies["model"].unique())
    told = _told(latencies.assign(seconds=1e6 * latencies["seconds"].astype(float)), "seconds", " µs")
    figure = new_figure(width, 0.34 * len(models) + 1.5, f"Time of one streaming step. {told}")
    axes = figure.subplots()
    colours = {name: look.colour for name, look in looks_of(latencies["arithmetic"]).items()}
    states = sorted(latencies["state"].dropna().unique())
    markers = {state: _STATE_MARKERS[i % len(_STATE_MARKERS)] for i, state in enumerate(states)}
    for _, row in latencies.dropna(subset=["seconds"]).iterrows():
        place = models.index(row["model"]) + _shift(row["arithmetic"], list(colours))
        marker, colour = markers.get(row["state"], "|"), colours[row["arithmetic"]]
        axes.plot([1e6 * row["least"], 1e6 * row["most"]], [place, place], color=colour, lw=1.1, alpha=0.6)
        axes.plot(1e6 * row["seconds"], place, marker, color=colour, ms=5.5, mew=1.4, mfc="white")
    axes.set(xscale="log", xlabel="microseconds a step", ylim=(len(models) - 0.5, -0.5))
    axes.set_yticks(range(len(models)), models)
    _log_ticks(axes, "x")
    handles = [Line2D([], [], color=colour, lw=4) for colour in colours.values()]
    handles += [Line2D([], [], color="0.3", ls="", mfc="white", marker=marker) for marker in markers.values()]
    names = [*map(str, colours), *(f"{int(state)} channels of state" for state in states)]
    if latencies["state"].isna().any():
        handles.append(Line2D([], [], color="0.3", ls="", marker="|", ms=7, mew=1.4))
        names.append("no such width")
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False)
    reading(figure, f"{_RANGE}{_missing(latencies, 'seconds')}")
    return figure


def draw_speed_panel(
    axes: Axes, rows: pd.DataFrame, columns: tuple[str, str, str], looks: dict[str, Look]
) -> None:
    """Lines against `length`, named at their ends, on logarithmic axes; `columns` are median, least and most."""
    median, least, most = columns
    known = rows.dropna(subset=[median]).sort_values("length")
    if known.empty:
        axes.text(0.5, 0.5, "nothing was measured", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    for model, group in known.groupby("model", sort=False):
        look = looks[str(model)]
        axes.vlines(group["length"], group[least], group[most], color=look.colour, lw=1, zorder=1.9)
        axes.plot(
            group["length"],
            group[median],
            color=look.colour,
            ls=look.dash,
            marker=look.marker,
            ms=4,
            lw=1.5,
        )
    axes.set_yscale("log")
    length_axis(axes, sorted({int(length) for length in known["length"]}))
    low, high = float(known[least].min()), float(known[most].max())
    axes.set_ylim(low / 1.25, high * 1.25)
    _log_ticks(axes, "y")
    _name_lines(axes, known.groupby("model", sort=False).last(), median, looks)


def spread_apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Places in [0, 1], as near as can be to the wanted ones, in their order and at least `gap` from each other."""
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(order))
    free = isotonic_regression(np.asarray(wanted, dtype=float)[order] - steps).x
    places = np.empty(len(order))
    places[order] = np.clip(free, 0, max(0.0, 1 - gap * (len(order) - 1))) + steps
    return [float(place) for place in places]


def _name_lines(axes: Axes, ends: pd.DataFrame, column: str, looks: dict[str, Look]) -> None:
    """Each line's name at the right, joined to its last point (`ends`, a row per model) by dots."""
    low, high = np.log(axes.get_ylim())
    wanted = [(np.log(float(value)) - low) / (high - low) for value in ends[column]]
    # A name takes a line's height of the panel, whose height is near _PANEL without its labels.
    places = spread_apart(wanted, 1.2 * _LETTERS / 72 / (_PANEL - 0.6))
    beside = blended_transform_factory(axes.transAxes, axes.transAxes)
    for (model, row), place in zip(ends.iterrows(), places, strict=True):
        look = looks[str(model)]
        axes.annotate(
            str(model),
            (float(row["length"]), float(row[column])),
            (1.04, place),
            textcoords=beside,
            va="center",
            fontsize=_LETTERS,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": look.colour,
                "lw": 0.8,
                "ls": ":",
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )


def _log_ticks(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 3000 else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: _decimal(value))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def _decimal(value: float) -> str:
    """5, 200, 20k, 0.05: in decimal units."""
    for power, name in ((1e6, "M"), (1e3, "k")):
        if value >= power * 0.999:
            return f"{value / power:g}{name}"
    return f"{value:g}"


def _shift(arithmetic: object, arithmetics: list[object]) -> float:
    """Where in its row a point of an arithmetic stands, so that two do not hide each other."""
    return 0.3 * (arithmetics.index(arithmetic) - (len(arithmetics) - 1) / 2)


def _told(rows: pd.DataFrame, column: str, unit: str) -> str:
    """The least and greatest number of each model, in words."""
    known = rows.dropna(subset=[column])
    ranges = known.assign(**{column: known[column].astype(float)}).groupby("model", sort=False)[column]
    told = [
        f"{model} {group.min():.3g}" + (f" to {group.max():.3g}" if len(group) > 1 else "")
        for model, group in ranges
    ]
    return f"{'; '.join(told) or 'nothing was measured'}{unit if told else ''}."


def _missing(rows: pd.DataFrame, column: str) -> str:
    """What has no number at all, as a line."""
    known = rows.groupby("model", sort=False)[column].count()
    none = [str(model) for model, count in known.items() if not count]
    return f"\nnot measured: {', '.join(none)}" if none else ""
