"""Accuracy against what it costs, every seed a point, the medians' Pareto line."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, PercentFormatter

from statelab.analysis.capacity import COSTS, capacity_table
from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import mark_solved
from statelab.analysis.style import (
    WIDTH,
    Look,
    looks_of,
    lowest,
    model_legend,
    new_figure,
    short_number,
    styled,
    wrapped,
)

_NAMES = {"state_size": "floats of state", "seconds": "seconds a lane"}
_LEGEND = (
    "small: one seed each (×: diverged) · large: median · line: no model is both cheaper and better "
    "(Pareto, over medians)"
)


@styled
def capacity_figure(
    lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None, width: float = WIDTH
) -> Figure:
    """A row per task: accuracy against floats of state and against the seconds of a lane, at the chosen rates.

    A lane's seconds are its share of its population's. Lanes whose state grows with the length (attention) have
    no place on the left.
    """
    best = in_order(at_chosen(mark_solved(lanes, threshold), chosen))
    table = capacity_table(lanes, chosen, threshold)
    looks = looks_of(best["model"])
    tasks = list(dict.fromkeys(best["task"]))
    lines = [
        f"{task}: " + (", ".join(rows.loc[rows["best_for_state_size"], "model"].astype(str)) or "none")
        for task, rows in list(table.groupby("task", sort=False))[:24]
    ]
    alt = (
        f"Accuracy against state size and lane-seconds. On the Pareto line of state size: {'; '.join(lines)}."
    )
    figure = new_figure(width, 2.0 * len(tasks) + 0.6 + 0.16 * len(looks), alt)
    grid = figure.subplots(len(tasks), len(COSTS), squeeze=False, sharex="col", sharey="row")
    for row, task in zip(grid, tasks, strict=True):
        of_task, medians = best[best["task"] == task], table[table["task"] == task]
        for axes, cost in zip(row, COSTS, strict=True):
            draw_capacity_panel(axes, of_task, medians, cost, looks)
        row[0].set_title(wrapped(task, 34), loc="left")
        row[0].set(ylabel="accuracy", ylim=(lowest(of_task["accuracy"], None), 1.04))
        row[0].yaxis.set_major_formatter(PercentFormatter(1))
    for axes, cost in zip(grid[-1], COSTS, strict=True):
        axes.set_xlabel(_NAMES[cost])
    model_legend(figure, looks, lines=False, below=_LEGEND)
    return figure


def draw_capacity_panel(
    axes: Axes, lanes: pd.DataFrame, medians: pd.DataFrame, cost: str, looks: dict[str, Look]
) -> None:
    """One task's lanes and medians (capacity_table) against the column `cost` onto an axes."""
    for model, group in lanes.groupby("model", sort=False):
        look, gone = looks[str(model)], group["status"] == "diverged"
        for which, marker in ((~gone, look.marker), (gone, "x")):
            points = group[which]
            if len(points):
                axes.plot(
                    points[cost], points["accuracy"], marker, ms=3, color=look.colour, alpha=0.5, mew=0.6
                )
    for _, row in medians.iterrows():
        look = looks[row["model"]]
        axes.plot(
            row[cost], row["median"], look.marker, ms=7, color=look.colour, mec="black", mew=0.8, zorder=4
        )
    front = medians[medians[f"best_for_{cost}"]].sort_values(cost)
    axes.step(front[cost], front["median"], where="post", color="0.25", lw=1, zorder=2)
    known = lanes[cost].dropna()
    if known.empty or (known <= 0).any():
        axes.text(0.5, 0.5, "not recorded" if known.empty else "", transform=axes.transAxes, ha="center")
        return
    axes.set_xscale("log")
    low, high = float(known.min()), float(known.max())
    axes.set_xlim(low / 1.6, high * 1.6)
    few = high / low < 8
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 3, 5, 7) if few else (1, 3), numticks=6))
    axes.xaxis.set_major_formatter(lambda x, _: short_number(float(f"{x:.2g}")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
