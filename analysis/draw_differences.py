"""Differences between models, each with its interval and every pair of seeds behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from statelab.analysis.settings import at_chosen
from statelab.analysis.solved import mark_solved
from statelab.analysis.style import WIDTH, new_figure, reading, styled, wrapped

_LEGEND = (
    "first − second at the chosen rates, in points of accuracy · large: mean with 95 % BCa interval · "
    "small: one pair of seeds each"
)
_ROW = 0.42


@styled
def difference_figure(
    differences: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, width: float = WIDTH
) -> Figure:
    """A block per task, a line per two models: mean difference with its interval, and each pair of seeds.

    `differences` of differences.paired_differences, at least one row.
    """
    best = at_chosen(mark_solved(lanes), chosen).set_index("seed")
    sides = {(str(t), str(m)): group["accuracy"] for (t, m), group in best.groupby(["task", "model"])}
    tasks = list(differences.groupby("task", sort=False))
    labels = [[_label(row) for _, row in rows.iterrows()] for _, rows in tasks]
    lines = max(label.count("\n") + 1 for names in labels for label in names)
    heights = [max(_ROW, 0.15 * lines) * len(names) + 0.35 for names in labels]
    figure = new_figure(width, sum(heights) + 0.9, _alt(differences))
    reading(figure, _LEGEND)
    grid = figure.subplots(len(tasks), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, names, (task, rows) in zip(grid, labels, tasks, strict=True):
        points = []
        for place, (first, second) in enumerate(zip(rows["first"], rows["second"], strict=True)):
            pairs = (sides[str(task), first] - sides[str(task), second]).dropna().to_numpy()
            spread = np.linspace(0.12, 0.38, len(pairs)) if len(pairs) > 1 else np.full(len(pairs), 0.25)
            points.append((pairs, place + spread))
        axes.scatter(*np.concatenate(points, axis=1), s=9, color="0.45", linewidths=0)
        centre, places = rows["difference"].to_numpy(), np.arange(len(rows)) - 0.08
        reach = np.nan_to_num(np.clip([centre - rows["bca_low"], rows["bca_high"] - centre], 0, None))
        axes.errorbar(centre, places, xerr=reach, fmt="D", ms=5, color="#0072b2", lw=1.6, capsize=3)
        axes.set_yticks(range(len(rows)), names, fontsize=7.5)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.axvline(0, color="0.35", lw=0.9)
        axes.grid(visible=False, axis="y")
        axes.set_title(wrapped(str(task), 50))
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda x, _: f"{100 * x:+.0f}" if round(100 * x) else "0")
        )
    grid[-1].set_xlabel("difference in accuracy, points")
    return figure


def _label(row: pd.Series) -> str:
    return f"{wrapped(row['first'], 20)} −\n{wrapped(row['second'], 20)}"


def _alt(differences: pd.DataFrame) -> str:
    rows = [
        f"{row['first']} minus {row['second']} on {row['task']} {100 * row['difference']:+.1f}"
        for _, row in differences.head(24).iterrows()
    ]
    return f"Paired differences in points of accuracy with 95 % intervals: {'; '.join(rows)}."
