"""Who solved what: the share solved with its interval and every seed, and the map of models and tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import PercentFormatter

from statelab.analysis.render import mark_chosen
from statelab.analysis.settings import at_chosen, in_order, setting_name, settings_of
from statelab.analysis.solved import choose_from, mark_solved, solved_table
from statelab.analysis.style import (
    WIDTH,
    Look,
    count_seeds,
    guides,
    looks_of,
    lowest,
    new_figure,
    reading,
    styled,
    wrapped,
)

_ROW = 0.3
_LEGEND = (
    "filled: the chosen rate · hollow: other rates · ×: diverged (×2: two)\n"
    "bars: 95 % Wilson interval · each point at the right is one seed\n"
    "dashed: threshold · dotted: chance"
)
_MAP_LEGEND = (
    "solved / lanes at the chosen rate, shaded by the share · each dot, where there is room, is one seed, "
    "filled where it solved, × where it diverged"
)
_DOT = 0.055
"""Inches of a square's width for each seed; narrower, dots would run into a bar and are left out."""
_LIGHT, _DARK = (0.93, 0.96, 0.99), (0.03, 0.27, 0.49)


@styled
def solved_figure(
    lanes: pd.DataFrame,
    threshold: float | None = None,
    chance: Mapping[str, float] | None = None,
    width: float = WIDTH,
    table: pd.DataFrame | None = None,
) -> Figure:
    """A block per task, a line per model and setting: share solved with its Wilson interval, and every seed.

    `lanes` as of sweeps.record.collect or tidy.as_lanes, at least one; `chance` the accuracy of guessing per task;
    `table` of solved.solved_table, where it is there already. The chosen setting of each model is filled, the others
    hollow; a diverged lane is a cross.
    """
    bare = solved_table(lanes, threshold) if table is None else table
    every = mark_chosen(bare, choose_from(bare))
    marked = in_order(mark_solved(lanes, threshold))
    blocks = [(str(task), rows) for task, rows in every.groupby("task", sort=False)]
    heights = [1.2 + _ROW * _places(rows)[-1] for _, rows in blocks]
    figure = new_figure(width, sum(heights) + 0.5, _solved_alt(every))
    reading(figure, _LEGEND)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    looks = looks_of(marked["model"])
    for panel, (task, rows) in zip(parts, blocks, strict=True):
        _solved_block(panel, rows, marked[marked["task"] == task], looks, (chance or {}).get(task))
    return figure


def _solved_alt(table: pd.DataFrame) -> str:
    best = table[table["chosen"]].head(24)
    counts = [f"{row['model']} on {row['task']} {row['solved']}/{row['n']}" for _, row in best.iterrows()]
    what = "Share of lanes solved with 95 % intervals, and every lane's final accuracy"
    return f"{what}. At the chosen rates: {'; '.join(counts)}."


def _solved_block(
    panel: SubFigure, rows: pd.DataFrame, lanes: pd.DataFrame, looks: dict[str, Look], chance: float | None
) -> None:
    threshold, places, settings = rows["threshold"].max(), _places(rows), settings_of(rows)
    seeds = count_seeds(lanes["seed"])
    title = f"{rows['task'].iloc[0]}: {seeds}, solved at accuracy ≥ {100 * threshold:.3g} %"
    panel.suptitle(wrapped(title, 60), fontsize=10)
    left, right = panel.subplots(1, 2, sharey=True, width_ratios=[1, 1.3])
    # The table's rows are these groups, in this order.
    groups = lanes.groupby(["model", *settings], dropna=False, sort=False)
    for place, (_, row), (_, of_row) in zip(places, rows.iterrows(), groups, strict=True):
        colour = looks[row["model"]].colour
        _draw_share(left, place, row, colour)
        _draw_seeds(right, place, of_row, colour, filled=bool(row["chosen"]))
    names = [wrapped(f"{row['model']}  {setting_name(row, settings)}", 24) for _, row in rows.iterrows()]
    left.set_yticks(places, names)
    for label, is_chosen in zip(left.get_yticklabels(), rows["chosen"], strict=True):
        label.set_fontweight("bold" if is_chosen else "normal")
    left.set_ylim(places[-1] + 0.8, -0.8)
    left.set(xlim=(-0.05, 1.05), xlabel="share solved", xticks=[0, 0.5, 1])
    right.set(xlim=(lowest(lanes["accuracy"], chance), 1.03), xlabel="final accuracy")
    for axes in (left, right):
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(visible=False, axis="y")
    guides(right.axvline, threshold, chance)


def _places(rows: pd.DataFrame) -> list[float]:
    """Heights of the lines, with half a line between models."""
    new_model = (rows["model"] != rows["model"].shift()).cumsum() - 1
    return [float(place) for place in np.arange(len(rows)) + 0.5 * new_model]


def _draw_share(axes: Axes, place: float, row: pd.Series, colour: str) -> None:
    share = row["solved"] / row["n"]
    # At 0 and 1 a bound may pass the share by a rounding error.
    reach = np.clip([[share - row["wilson_low"]], [row["wilson_high"] - share]], 0, 1)
    fill = colour if row["chosen"] else "white"
    axes.errorbar(share, place, xerr=reach, fmt="o", ms=5, color=colour, mfc=fill, lw=1.2, capsize=2)
    count = f"{row['solved']}/{row['n']}" + (f"  ×{row['diverged']}" if row["diverged"] else "")
    axes.text(1.03, place, count, transform=axes.get_yaxis_transform(), va="center", size=8)


def _draw_seeds(axes: Axes, place: float, lanes: pd.DataFrame, colour: str, *, filled: bool) -> None:
    """One point a lane, spread over the line's height by seed, so that equal values show."""
    ordered = lanes.sort_values("seed")
    spread = np.linspace(-0.3, 0.3, len(ordered)) if len(ordered) > 1 else np.zeros(1)
    diverged = (ordered["status"] == "diverged").to_numpy()
    x, y = ordered["accuracy"].to_numpy(), place + spread
    face = colour if filled else "none"
    if not diverged.all():
        axes.scatter(x[~diverged], y[~diverged], s=18, facecolors=face, edgecolors=colour, linewidths=0.8)
    if diverged.any():
        axes.scatter(x[diverged], y[diverged], s=22, marker="x", color=colour, linewidths=1)


@styled
def success_map(
    lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None, width: float = WIDTH
) -> Figure:
    """Models down, tasks across: solved / lanes at the chosen settings in each square, and a dot per seed.

    A pair without lanes is left white and says so. The figure grows wider than `width` where tasks need it.
    """
    marked = in_order(at_chosen(mark_solved(lanes, threshold), chosen))
    models, tasks = list(dict.fromkeys(marked["model"])), list(dict.fromkeys(marked["task"]))
    names = [wrapped(model, 22) for model in models]
    wide = max(width, 1.7 + 0.55 * len(tasks))
    tall = 1.5 + sum(max(0.42, 0.16 * (name.count("\n") + 1)) for name in names)
    alt = "; ".join(
        f"{row['model']} on {row['task']} {row['solved']}/{row['n']}" for _, row in chosen.head(24).iterrows()
    )
    figure = new_figure(wide, tall, f"Map of solved lanes, models down and tasks across: {alt}.")
    reading(figure, _MAP_LEGEND)
    axes = figure.subplots()
    cells = {(str(t), str(m)): group for (t, m), group in marked.groupby(["task", "model"], sort=False)}
    most = int((wide - 1.7) / len(tasks) / _DOT)
    for x, task in enumerate(tasks):
        for y, model in enumerate(models):
            _draw_square(axes, x, y, cells.get((task, model)), most)
    axes.set(xlim=(-0.5, len(tasks) - 0.5), ylim=(len(models) - 0.5, -0.5))
    crowded = (wide - 1.7) / len(tasks) < 0.075 * max(map(len, tasks))
    axes.set_xticks(
        range(len(tasks)),
        [wrapped(task, 24) for task in tasks],
        rotation=35 if crowded else 0,
        ha="right" if crowded else "center",
        rotation_mode="anchor" if crowded else None,
    )
    axes.set_yticks(range(len(models)), names)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    return figure


def _draw_square(axes: Axes, x: int, y: int, lanes: pd.DataFrame | None, most_dots: int) -> None:
    if lanes is None:
        axes.text(x, y, "none", ha="center", va="center", size=8, color="0.45")
        return
    solved, n = int(lanes["solved"].sum()), len(lanes)
    # One hue from nearly white to dark: in grey it reads the same.
    share = solved / n
    face = tuple(light + share * (dark - light) for light, dark in zip(_LIGHT, _DARK, strict=True))
    axes.fill_between([x - 0.48, x + 0.48], y - 0.46, y + 0.46, color=face, lw=0)
    ink = "black" if share < 0.5 else "white"
    axes.text(x, y - 0.12, f"{solved}/{n}", ha="center", va="center", size=9, color=ink, weight="bold")
    if n > most_dots:
        return
    ordered = lanes.sort_values("seed")
    places = x + np.linspace(-0.36, 0.36, n) * min(1.0, n / 8)
    won, gone = ordered["solved"].to_numpy(), (ordered["status"] == "diverged").to_numpy()
    for which, marker, fill in ((won, "o", ink), (~won & ~gone, "o", "none"), (gone, "x", ink)):
        if which.any():
            axes.plot(
                places[which], np.full(which.sum(), y + 0.27), marker, ms=2.6, mfc=fill, mec=ink, mew=0.6
            )
