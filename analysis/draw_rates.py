"""Learning rates: every lane of a model as a square of rate and seed, and below it success against rate."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from statelab.analysis.render import mark_chosen
from statelab.analysis.settings import in_order, setting_name, settings_of
from statelab.analysis.solved import choose_from, mark_solved, solved_table
from statelab.analysis.style import TITLE, WIDTH, columns_of, new_figure, reading, styled, wrapped

_LEGEND = (
    "squares: final accuracy of each lane (dot: solved, ×: diverged, blank: no lane) · below: share solved with "
    "95 % Wilson interval, filled at the chosen rate · ◂ ▸: chosen at the edge of the rates tried"
)
_MOST_TICKS = 6
_SEED = 0.1


@styled
def rate_figure(
    lanes: pd.DataFrame,
    threshold: float | None = None,
    width: float = WIDTH,
    table: pd.DataFrame | None = None,
) -> Figure:
    """A column per (task, model): rate × seed heat map above, success against rate below.

    Where settings beside the rate vary (weight decay, …) each setting is a column. `lanes` of at least one; `table` of
    solved.solved_table, where it is there already.
    """
    marked = in_order(mark_solved(lanes, threshold))
    bare = solved_table(lanes, threshold) if table is None else table
    chosen = choose_from(bare)
    cells = list(mark_chosen(bare, chosen).groupby(["task", "model"], sort=False))
    abreast = columns_of(len(cells), width)
    lines = -(-len(cells) // abreast)
    seeds = min(int(marked.groupby(["task", "model"])["seed"].nunique().max()), 40)
    tall = lines * (1.75 + max(0.5, _SEED * seeds)) + 0.9
    figure = new_figure(width, tall, _alt(chosen))
    reading(figure, _LEGEND)
    ratios = [max(0.5, _SEED * seeds), 0.8] * lines
    grid = figure.subplots(2 * lines, abreast, squeeze=False, height_ratios=ratios)
    edges = {(row["task"], row["model"]): str(row["edge"]) for _, row in chosen.iterrows()}
    for place, (key, rows) in enumerate(cells):
        task, model = map(str, key)
        top, below = grid[2 * (place // abreast) : 2 * (place // abreast) + 2, place % abreast]
        of_cell = marked[(marked["task"] == task) & (marked["model"] == model)]
        draw_rate_panel(top, below, rows, of_cell, edges[task, model])
        names = (task, model) if bare["task"].nunique() > 1 else (model,)
        top.set_title("\n".join(wrapped(name, TITLE) for name in names), fontsize=8.5)
        if place % abreast:
            for axes in (top, below):
                axes.set_ylabel("")
    for unused in range(len(cells), lines * abreast):
        for axes in grid[2 * (unused // abreast) : 2 * (unused // abreast) + 2, unused % abreast]:
            axes.remove()
    scale = ScalarMappable(Normalize(0, 1), "cividis")
    bar = figure.colorbar(scale, ax=list(figure.axes), location="top", aspect=60, shrink=0.5, pad=0.02)
    bar.set_label("final accuracy", size=8)
    bar.ax.xaxis.set_major_formatter(PercentFormatter(1))
    bar.ax.tick_params(labelsize=7)
    return figure


def _alt(chosen: pd.DataFrame) -> str:
    found = []
    for _, row in chosen.head(24).iterrows():
        edge = f" (the {row['edge']} tried)" if row["edge"] else ""
        name = setting_name(row, settings_of(chosen))
        found.append(f"{row['model']} on {row['task']} {name}{edge}, {row['solved']}/{row['n']}")
    return f"Final accuracy of every lane by rate and seed, and success against rate. Chosen: {'; '.join(found)}."


def draw_rate_panel(top: Axes, below: Axes, rows: pd.DataFrame, lanes: pd.DataFrame, edge: str) -> None:
    """One model: `rows` of its solved_table with `chosen`, its lanes marked solved, and the chosen rate's edge."""
    settings = settings_of(rows)
    seeds = sorted(set(lanes["seed"]))
    x = lanes.groupby(settings, dropna=False, sort=False).ngroup().to_numpy()
    y = np.searchsorted(seeds, lanes["seed"])
    grid = np.full((len(seeds), int(x.max()) + 1), np.nan)
    grid[y, x] = lanes["accuracy"]
    won, crossed = lanes["solved"].to_numpy(), (lanes["status"] == "diverged").to_numpy()
    size = min(12.0, 400 / len(seeds))
    if won.any():
        top.scatter(x[won], y[won], s=size * 0.6, color="black", linewidths=0, zorder=3)
    if crossed.any():
        top.scatter(x[crossed], y[crossed], s=size, marker="x", color="0.3", linewidths=0.9, zorder=3)
    top.imshow(grid, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    top.set(xlim=(-0.5, grid.shape[1] - 0.5), ylim=(len(seeds) - 0.5, -0.5), ylabel="seed", xticks=[])
    _seed_ticks(top, seeds)
    top.grid(visible=False)
    _draw_success(below, rows, edge)
    names = [setting_name(row, settings) for _, row in rows.iterrows()]
    every = -(-len(names) // _MOST_TICKS)
    crowded = sum(len(name) for name in names[::every]) > 18
    below.set_xticks(
        range(0, len(names), every),
        [wrapped(name, 14) for name in names[::every]],
        rotation=40 if crowded else 0,
        ha="right" if crowded else "center",
        rotation_mode="anchor" if crowded else None,
    )


def _seed_ticks(axes: Axes, seeds: list[int]) -> None:
    places = [0, len(seeds) - 1] if len(seeds) > 1 else [0]
    axes.set_yticks(places, [str(seeds[i]) for i in places])


def _draw_success(axes: Axes, rows: pd.DataFrame, edge: str) -> None:
    share = (rows["solved"] / rows["n"]).to_numpy()
    reach = np.clip([share - rows["wilson_low"], rows["wilson_high"] - share], 0, 1)
    x = np.arange(len(rows))
    axes.errorbar(x, share, yerr=reach, fmt="-o", ms=4.5, mfc="white", color="0.25", lw=1, capsize=2)
    best = rows["chosen"].to_numpy()
    axes.plot(x[best], share[best], "o", ms=4.5, color="black", zorder=5)
    if edge:
        mark, side, shift = ("◂", "right", -0.12) if edge == "lowest" else ("▸", "left", 0.12)
        axes.text(x[best][0] + shift, share[best][0], mark, ha=side, va="center", size=10, weight="bold")
    axes.set(xlim=(-0.5, len(rows) - 0.5), ylim=(-0.06, 1.06), ylabel="solved", xlabel="learning rate")
    axes.set_yticks([0, 0.5, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=False, axis="x")
