"""The two figures of a study: who solved what, and how far in length it holds.

Drawn on Figure objects of their own, so no figure stays open in pyplot and no style of the caller's changes.
What matters is told by position, fill and line style; colour only repeats which model it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from statelab.analysis.lengths import lengths_at_chosen
from statelab.analysis.render import mark_chosen
from statelab.analysis.settings import in_order, setting_name, settings_of
from statelab.analysis.solved import choose_rates, mark_solved, solved_table
from statelab.analysis.style import colours_of, count_seeds, guides, lowest, styled, wrapped

_ROW = 0.27
_ABREAST = 4
_SOLVED_LEGEND = (
    "filled: the chosen rate · hollow: other rates · ×: diverged (×2: two) · bars: 95 % Wilson interval\n"
    "each point at the right is one seed · dashed: threshold · dotted: chance"
)
_LENGTH_LEGEND = (
    "thick: median · thin: one seed each (dashed: diverged)\n"
    "vertical: training length · dashed: threshold · dotted: chance"
)


@styled
def solved_figure(
    lanes: pd.DataFrame, threshold: float | None = None, chance: Mapping[str, float] | None = None
) -> Figure:
    """A block per task, a line per model and setting: share solved with its Wilson interval, and every seed.

    `lanes` as of sweeps.record.collect, at least one; `chance` the accuracy of guessing per task. The chosen
    setting of each model is filled, the others hollow; a diverged lane is a cross.
    """
    table = mark_chosen(solved_table(lanes, threshold), choose_rates(lanes, threshold))
    marked = in_order(mark_solved(lanes, threshold))
    blocks = [(str(task), rows) for task, rows in table.groupby("task", sort=False)]
    heights = [1.2 + _ROW * _places(rows)[-1] for _, rows in blocks]
    figure = Figure(figsize=(8.5, sum(heights) + 0.3), layout="constrained")
    figure.supxlabel(_SOLVED_LEGEND, fontsize=8)
    panels = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    colours = colours_of(lanes["model"])
    for panel, (task, rows) in zip(panels, blocks, strict=True):
        of_task = marked[marked["task"] == task]
        _solved_block(panel, rows, of_task, colours, (chance or {}).get(task))
    return figure


def _solved_block(
    panel: SubFigure, rows: pd.DataFrame, lanes: pd.DataFrame, colours: dict[str, str], chance: float | None
) -> None:
    threshold, places, settings = rows["threshold"].max(), _places(rows), settings_of(rows)
    title = (
        f"{rows['task'].iloc[0]}: {count_seeds(lanes['seed'])}, solved at accuracy ≥ {100 * threshold:.3g} %"
    )
    panel.suptitle(title, fontsize=10)
    left, right = panel.subplots(1, 2, sharey=True, width_ratios=[1, 1.5])
    # The table's rows are these groups, in this order.
    groups = lanes.groupby(["model", *settings], dropna=False, sort=False)
    for place, (_, row), (_, of_row) in zip(places, rows.iterrows(), groups, strict=True):
        _draw_share(left, place, row, colours[row["model"]])
        _draw_seeds(right, place, of_row, colours[row["model"]], filled=bool(row["chosen"]))
    names = [wrapped(f"{row['model']}  {setting_name(row, settings)}") for _, row in rows.iterrows()]
    left.set_yticks(places, names)
    for label, is_chosen in zip(left.get_yticklabels(), rows["chosen"], strict=True):
        label.set_fontweight("bold" if is_chosen else "normal")
    left.set_ylim(places[-1] + 0.8, -0.8)
    left.set(xlim=(-0.03, 1.03), xlabel="share solved")
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
    axes.text(1.02, place, count, transform=axes.get_yaxis_transform(), va="center", size=8)


def _draw_seeds(axes: Axes, place: float, lanes: pd.DataFrame, colour: str, *, filled: bool) -> None:
    """One point a lane, spread over the line's height by seed, so that equal values show."""
    ordered = lanes.sort_values("seed")
    spread = np.linspace(-0.3, 0.3, len(ordered)) if len(ordered) > 1 else np.zeros(1)
    diverged = (ordered["status"] == "diverged").to_numpy()
    x, y = ordered["accuracy"].to_numpy(), place + spread
    face = colour if filled else "none"
    axes.scatter(x[~diverged], y[~diverged], s=18, facecolors=face, edgecolors=colour, linewidths=0.8)
    axes.scatter(x[diverged], y[diverged], s=22, marker="x", color=colour, linewidths=1)


@styled
def length_figure(
    lengths: pd.DataFrame,
    lanes: pd.DataFrame,
    threshold: float | None = None,
    chance: Mapping[str, float] | None = None,
) -> Figure:
    """Accuracy over length at the chosen rates: a block per task, a facet per model, a thin line per seed.

    `lengths` as of sweeps.record.collect_lengths, at least one row of a lane at a chosen rate. The median
    over seeds is thick, the training length a vertical line, guessing (`chance`, per task) dotted, the
    threshold dashed; diverged lanes are dashed.
    """
    chosen = choose_rates(lanes, threshold)
    tested = mark_solved(lengths_at_chosen(lengths, lanes, chosen), threshold)
    blocks = [(str(task), rows) for task, rows in tested.groupby("task", sort=False)]
    facets = [rows["model"].nunique() for _, rows in blocks]
    heights = [-(-count // _ABREAST) for count in facets]
    columns = min(max(facets), _ABREAST)
    figure = Figure(figsize=(max(2.4 * columns + 0.6, 4.5), 2.3 * sum(heights) + 0.4), layout="constrained")
    figure.supxlabel(_LENGTH_LEGEND, fontsize=8)
    panels = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    colours = colours_of(lanes["model"])
    for panel, (task, rows), height in zip(panels, blocks, heights, strict=True):
        grid = panel.subplots(height, columns, squeeze=False, sharex=True, sharey=True)
        titles = _facet_titles(rows, chosen[chosen["task"] == task])
        _length_block(panel, list(grid.ravel()), rows, titles, colours)
        level = (chance or {}).get(task)
        for axes in panel.get_axes():
            guides(axes.axhline, rows["threshold"].max(), level)
            axes.set_ylim(lowest(rows["accuracy"], level), 1.05)
    return figure


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
    panel: SubFigure, grid: list[Axes], rows: pd.DataFrame, titles: dict[str, str], colours: dict[str, str]
) -> None:
    panel.suptitle(f"{rows['task'].iloc[0]}: accuracy over length", fontsize=10)
    lengths = sorted({*rows["length"], *rows["train_length"]})
    models = rows["model"].unique()
    for axes, model in zip(grid, models, strict=False):
        of_model = rows[rows["model"] == model]
        for trained in set(of_model["train_length"]):
            axes.axvline(trained, color="0.5", lw=1, zorder=1)
        _draw_lengths(axes, of_model, colours[model])
        _length_axis(axes, lengths)
        axes.set_title(titles[model])
    for unused in grid[len(models) :]:
        unused.remove()


def _draw_lengths(axes: Axes, rows: pd.DataFrame, colour: str) -> None:
    measured = rows.dropna(subset=["accuracy"])
    if measured.empty:
        axes.text(0.5, 0.5, "no measurement", transform=axes.transAxes, ha="center", va="center")
        return
    thin: dict[str, Any] = {"lw": 0.7, "marker": "o", "ms": 2, "mew": 0, "color": colour, "alpha": 0.55}
    for status, of_status in measured.groupby("status"):
        seeds = of_status.pivot(index="length", columns="id", values="accuracy")
        axes.plot(seeds.index, seeds.to_numpy(), ls="--" if status == "diverged" else "-", **thin)
    sns.lineplot(
        measured,
        x="length",
        y="accuracy",
        estimator="median",
        errorbar=None,
        color=colour,
        lw=2.2,
        marker="o",
        ms=4,
        mew=0,
        ax=axes,
    )


def _length_axis(axes: Axes, lengths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(_apart(lengths)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(lengths[0] / 1.2, lengths[-1] * 1.2), xlabel="length")
    axes.set_ylabel("accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.label_outer()


def _apart(lengths: list[int]) -> list[int]:
    """The lengths that leave room for each other's labels, a seventh of the axis; the longest always."""
    least = np.log(lengths[-1] / lengths[0]) / 7
    kept = [lengths[-1]]
    for length in reversed(lengths[:-1]):
        if np.log(kept[-1] / length) >= least:
            kept.append(length)
    return kept
