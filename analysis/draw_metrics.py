"""What was measured beside accuracy, by category, and accuracy over ranges of lengths."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from statelab.analysis.style import (
    TITLE,
    WIDTH,
    Look,
    looks_of,
    model_legend,
    new_figure,
    panels,
    reading,
    styled,
    wrapped,
)
from statelab.analysis.summaries import chosen_ids

_LEGEND = "at the tested length nearest to the training length · thick: median · thin: one seed each"
_RANGE_LEGEND = "each point is one seed · |: median · dashed: threshold"
_AXIS = {
    "by_distance": "distance of the answer, in octaves",
    "per_class": "target token",
    "per_position": "position",
    "prefix_exact": "position",
    "exact_answers": "",
}
_NAMES = {
    "by_distance": "accuracy by distance",
    "per_class": "recall of each target token",
    "per_position": "accuracy by position",
    "prefix_exact": "rows without a mistake so far",
    "exact_answers": "answers wholly right",
}


def metric_rows(metrics: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """What metric_figure draws: chosen lanes, each task's tested length nearest to its training length."""
    best = metrics[metrics["id"].isin(chosen_ids(lanes, chosen))].dropna(subset=["value"])
    away = (best["length"] - best["train_length"]).abs()
    return best[away == away.groupby(best["task"]).transform("min")]


@styled
def metric_figure(
    metrics: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, width: float = WIDTH
) -> Figure:
    """A panel per (task, metric) at the chosen rates: the metric by position, class or distance.

    `metrics` as of sweeps.record.collect_metrics, with some value of a lane at a chosen rate.
    """
    best = metric_rows(metrics, lanes, chosen)
    cells = list(best.groupby(["task", "metric"], sort=False))
    looks = looks_of(chosen["model"])
    told = [f"{_NAMES.get(str(metric), metric)} on {task}" for (task, metric), _ in cells[:24]]
    lines = -(-len(cells) // max(1, min(len(cells), int(width / 2.2))))
    figure = new_figure(width, 2.2 * lines + 0.5 + 0.16 * len(looks), f"{'; '.join(told)}, a line per seed.")
    for axes, ((task, metric), group) in zip(panels(figure, len(cells)), cells, strict=True):
        draw_metric_panel(axes, group, str(metric), looks)
        names = (str(task), _NAMES.get(str(metric), str(metric)))
        axes.set_title("\n".join(wrapped(name, TITLE) for name in names), fontsize=8.5)
    model_legend(figure, looks, lines=True, below=_LEGEND)
    return figure


def draw_metric_panel(axes: Axes, rows: pd.DataFrame, metric: str, looks: dict[str, Look]) -> None:
    """One task's metric onto an axes: rows with id, model, index and value."""
    single = rows["index"].nunique() == 1
    for place, (model, group) in enumerate(rows.groupby("model", sort=False)):
        look = looks[str(model)]
        if single:
            axes.plot([place] * len(group), group["value"], look.marker, ms=4, color=look.colour, alpha=0.6)
            axes.plot(place, group["value"].median(), "_", ms=16, color="black")
            continue
        seeds = group.pivot(index="index", columns="id", values="value")
        axes.plot(seeds.index, seeds.to_numpy(), color=look.colour, lw=0.6, alpha=0.45)
        middle = group.groupby("index")["value"].median()
        few: dict[str, Any] = {"marker": look.marker, "ms": 3.5} if len(middle) <= 24 else {}
        axes.plot(middle.index, middle.to_numpy(), color=look.colour, ls=look.dash, lw=2, **few)
    if single:
        axes.set_xticks([])
        axes.set_xlim(-0.6, rows["model"].nunique() - 0.4)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel(_AXIS.get(metric, "index"))
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1))


@styled
def range_figure(
    ranges: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, width: float = WIDTH
) -> Figure:
    """A panel per (task, range of lengths): a line per model at its chosen rate, a point per seed."""
    best = ranges[ranges["id"].isin(chosen_ids(lanes, chosen))]
    cells = list(best.groupby(["task", "shortest", "length"], sort=False))
    looks = looks_of(chosen["model"])
    names = [f"{task} at lengths {low} to {high}" for (task, low, high), _ in cells[:24]]
    heights = [0.3 * group["model"].nunique() + 0.3 for _, group in cells]
    figure = new_figure(
        width, sum(heights) + 0.35 * len(cells) + 0.8, f"Accuracy of each lane on {'; '.join(names)}."
    )
    grid = figure.subplots(len(cells), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    level = lanes.groupby("task")["threshold"].max().to_dict()
    for axes, ((task, low, high), group) in zip(grid, cells, strict=True):
        models = list(dict.fromkeys(group["model"]))
        for place, model in enumerate(models):
            values = group.loc[group["model"] == model, "accuracy"].astype(float).dropna()
            axes.plot(
                values, [place] * len(values), looks[model].marker, ms=4, color=looks[model].colour, alpha=0.6
            )
            if len(values):
                axes.plot(values.median(), place, "|", ms=13, mew=1.6, color="black")
        axes.axvline(level[task], color="0.35", ls="--", lw=0.8)
        axes.set_yticks(range(len(models)), [wrapped(model, 24) for model in models])
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set_title(wrapped(f"{task}: lengths {low} to {high}", 40))
    grid[-1].set(xlabel="accuracy", xlim=(-0.03, 1.03))
    grid[-1].xaxis.set_major_formatter(PercentFormatter(1))
    reading(figure, _RANGE_LEGEND)
    return figure
