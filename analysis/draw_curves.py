"""Training: loss and accuracy of every seed by step, and where each escaped."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from statelab.analysis.settings import at_chosen, in_order, setting_name, settings_of
from statelab.analysis.style import (
    WIDTH,
    looks_of,
    lowest,
    new_figure,
    reading,
    short_number,
    styled,
    wrapped,
)

_LEGEND = "a line per seed (dashed: diverged) · black: median of those still evaluated · ▲: where it escaped"
_RASTER = 3000
"""With more points than this in a panel its lines are pixels in SVG and PDF files too."""


@styled
def curve_figure(
    curves: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, width: float = WIDTH
) -> Figure:
    """A row per (task, model) at the chosen rates: loss and accuracy by step, a line per seed, escapes marked.

    `curves` as of sweeps.record.collect_curves, at least one point of a lane at a chosen rate.
    """
    best = in_order(at_chosen(lanes, chosen))
    drawn = curves[curves["id"].isin(best["id"])]
    cells = [
        (key, group)
        for key, group in best.groupby(["task", "model"], sort=False)
        if group["id"].isin(drawn["id"]).any()
    ]
    looks = looks_of(best["model"])
    names = [f"{model} on {task}" for (task, model), _ in cells[:24]]
    alt = f"Loss and accuracy by training step, a line per seed, of {'; '.join(names)}."
    figure = new_figure(width, 1.65 * len(cells) + 0.5, alt)
    reading(figure, _LEGEND)
    grid = figure.subplots(len(cells), 2, squeeze=False, sharex=True)
    rates = {(r["task"], r["model"]): setting_name(r, settings_of(chosen)) for _, r in chosen.iterrows()}
    for row, ((task, model), group) in zip(grid, cells, strict=True):
        of_cell = drawn[drawn["id"].isin(group["id"])]
        for axes, value in zip(row, ("loss", "accuracy"), strict=True):
            draw_curve_panel(axes, of_cell, group, value, looks[str(model)].colour)
        name = f"{model} · {task}" if best["task"].nunique() > 1 else str(model)
        row[0].set_title(f"{wrapped(name, 60)}, rate {rates[task, model]}", loc="left", fontsize=8.5)
        row[0].set_ylim(bottom=0)
        row[1].set_ylim(lowest(of_cell["accuracy"].astype(np.float64), None), 1.04)
        row[1].yaxis.set_major_formatter(PercentFormatter(1))
    for axes in grid[-1]:
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(lambda x, _: short_number(x))
    return figure


def draw_curve_panel(axes: Axes, curves: pd.DataFrame, lanes: pd.DataFrame, value: str, colour: str) -> None:
    """One model's curves of the column `value` onto an axes; `lanes` tells which diverged or escaped."""
    known = curves.dropna(subset=[value])
    axes.set_ylabel(value)
    if known.empty:
        axes.text(0.5, 0.5, "no measurement", transform=axes.transAxes, ha="center", va="center")
        return
    gone = set(lanes.loc[lanes["status"] == "diverged", "id"])
    points, of_lane = known[["step", value]].to_numpy(np.float64), known.groupby("id", sort=False).indices
    lines = [points[places] for places in of_lane.values()]
    dashes = ["--" if lane in gone else "-" for lane in of_lane]
    seeds = LineCollection(lines, colors=colour, linewidths=0.7, linestyles=dashes, alpha=0.6)
    seeds.set_rasterized(len(known) > _RASTER)
    axes.add_collection(seeds)
    middle = known.groupby("step")[value].median()
    axes.plot(middle.index, middle.to_numpy(), color="black", lw=1.2)
    if "escape_step" in lanes.columns:
        steps = lanes.set_index("id")["escape_step"].astype(np.float64).dropna()
        at = known[known["step"] == known["id"].map(steps)]
        axes.plot(at["step"], at[value], "^", ms=4, color=colour, mec="black", mew=0.5, zorder=4)
    axes.autoscale_view()
