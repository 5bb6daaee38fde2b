"""Accuracy over length, far beyond the training length: every seed, the median, the middle half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import PercentFormatter

from statelab.analysis.lengths import lengths_at_chosen
from statelab.analysis.settings import setting_name, settings_of
from statelab.analysis.solved import choose_rates, mark_solved
from statelab.analysis.style import (
    WIDTH,
    Look,
    columns_of,
    guides,
    length_axis,
    looks_of,
    lowest,
    new_figure,
    reading,
    styled,
    wrapped,
)

_LEGEND = (
    "thick: median · band: middle half of the seeds · thin: one seed each (dashed: diverged)\n"
    "vertical: training length · dashed: threshold · dotted: chance"
)
NAMES = {
    "accuracy": "accuracy",
    "scaled_accuracy": "scaled accuracy",
    "prefix_exact": "rows without a mistake",
}


@styled
def length_figure(
    lengths: pd.DataFrame,
    lanes: pd.DataFrame,
    threshold: float | None = None,
    chance: Mapping[str, float] | None = None,
    value: str = "accuracy",
    width: float = WIDTH,
    chosen: pd.DataFrame | None = None,
) -> Figure:
    """Accuracy over length at the chosen rates: a block per task, a facet per model, a thin line per seed.

    `lengths` as of sweeps.record.collect_lengths, at least one row of a lane at a chosen rate; `value` is the
    column drawn: accuracy (of tokens), scaled_accuracy, or prefix_exact of lengths.with_prefix_exact. The median
    over seeds is thick with the middle half as a band, the training length a vertical line, guessing (`chance`,
    per task) dotted, the threshold dashed; diverged lanes are dashed. `chosen` of
    solved.choose_rates, where it is there already.
    """
    if chosen is None:
        chosen = choose_rates(lanes, threshold)
    tested = mark_solved(lengths_at_chosen(lengths, lanes, chosen), threshold)
    tested = tested.assign(shown=tested[value].astype(np.float64))
    blocks = [(str(task), rows) for task, rows in tested.groupby("task", sort=False)]
    facets = [rows["model"].nunique() for _, rows in blocks]
    columns = columns_of(max(facets), width)
    heights = [-(-count // columns) for count in facets]
    figure = new_figure(width, 2.1 * sum(heights) + 0.3 * len(blocks) + 0.4, _alt(tested, value))
    reading(figure, _LEGEND)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    looks = looks_of(lanes["model"])
    for panel, (task, rows), height in zip(parts, blocks, heights, strict=True):
        grid = panel.subplots(height, columns, squeeze=False, sharex=True, sharey=True)
        titles = _facet_titles(rows, chosen[chosen["task"] == task])
        _length_block(panel, list(grid.ravel()), rows, titles, looks, NAMES.get(value, value))
        level = (chance or {}).get(task) if value == "accuracy" else None
        for axes in panel.get_axes():
            guides(axes.axhline, rows["threshold"].max(), level)
            axes.set_ylim(lowest(rows["shown"], level), 1.05)
    return figure


def _alt(tested: pd.DataFrame, value: str) -> str:
    last = tested[tested["length"] == tested.groupby("task")["length"].transform("max")]
    ends = []
    for (task, model), group in list(last.groupby(["task", "model"], sort=False))[:24]:
        median = group["shown"].median()
        ends.append(f"{model} on {task} {'not measured' if np.isnan(median) else f'{100 * median:.0f} %'}")
    low, high = tested["length"].min(), tested["length"].max()
    what = NAMES.get(value, value).capitalize()
    return f"{what} over lengths {low} to {high}, a line per seed. Median at the longest: {'; '.join(ends)}."


def _facet_titles(rows: pd.DataFrame, chosen: pd.DataFrame) -> dict[str, str]:
    titles = {}
    for _, row in chosen.iterrows():
        tested = rows.loc[rows["model"] == row["model"], "id"].nunique()
        seeds = "1 seed" if row["n"] == 1 else f"{row['n']} seeds"
        count = seeds if tested == row["n"] else f"{tested} of {seeds}"
        kept_together = count.replace(" ", "\N{NO-BREAK SPACE}")
        rate = f"rate {setting_name(row, settings_of(chosen))}, {kept_together}"
        titles[str(row["model"])] = f"{wrapped(str(row['model']))}\n{wrapped(rate)}"
    return titles


def _length_block(
    panel: SubFigure,
    grid: list[Axes],
    rows: pd.DataFrame,
    titles: dict[str, str],
    looks: dict[str, Look],
    name: str,
) -> None:
    panel.suptitle(wrapped(f"{rows['task'].iloc[0]}: {name} over length", 60), fontsize=10)
    lengths = sorted({*rows["length"], *rows["train_length"].dropna()})
    models = rows["model"].unique()
    for axes, model in zip(grid, models, strict=False):
        of_model = rows[rows["model"] == model]
        for trained in set(of_model["train_length"].dropna()):
            axes.axvline(trained, color="0.5", lw=1, zorder=1)
        draw_length_panel(axes, of_model, looks[model].colour)
        length_axis(axes, lengths)
        axes.set(xlabel="length", ylabel=name)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.label_outer()
        axes.set_title(titles[model])
    for unused in grid[len(models) :]:
        unused.remove()


def draw_length_panel(axes: Axes, rows: pd.DataFrame, colour: str) -> None:
    """One model's lines onto an axes: `rows` with id, length, status and `shown`, the value of each."""
    measured = rows.dropna(subset=["shown"])
    if measured.empty:
        axes.text(0.5, 0.5, "no measurement", transform=axes.transAxes, ha="center", va="center")
        return
    thin: dict[str, Any] = {"lw": 0.7, "marker": "o", "ms": 2, "mew": 0, "color": colour, "alpha": 0.55}
    for status, of_status in measured.groupby("status"):
        seeds = of_status.pivot(index="length", columns="id", values="shown")
        axes.plot(seeds.index, seeds.to_numpy(), ls="--" if status == "diverged" else "-", **thin)
    every = measured.pivot(index="length", columns="id", values="shown")
    low, middle, high = np.nanquantile(every.to_numpy(), [0.25, 0.5, 0.75], axis=1)
    axes.fill_between(every.index, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(every.index, middle, color=colour, lw=2.2, marker="o", ms=4, mew=0)
