"""When lanes solved, and how solved counts depend on where the threshold is put."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from statelab.analysis.escape import survival_curves
from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import threshold_table
from statelab.analysis.style import (
    WIDTH,
    Look,
    looks_of,
    model_legend,
    new_figure,
    short_number,
    styled,
    wrapped,
)
from statelab.analysis.tidy import as_lanes

_TIME_LEGEND = (
    "share of lanes that have reached the threshold (1 − Kaplan–Meier) with 95 % bands, at the right the last · "
    "beneath, each lane: | where it escaped, > where training ended first, × diverged"
)
_THRESHOLD_LEGEND = "lanes with final accuracy at or above each threshold · vertical: the study's threshold"
_ROW = 0.075
_BANDS = 3
"""Bands of more models than this would hide each other."""


@styled
def time_figure(times: pd.DataFrame, chosen: pd.DataFrame, width: float = WIDTH) -> Figure:
    """A panel per task: the share of lanes that have escaped by each step, and beneath it every lane.

    `times` of escape.escape_times, `chosen` of solved.choose_rates or fixed_rate; at least one lane of both.
    """
    best = in_order(at_chosen(times, chosen))
    curves = survival_curves(times, chosen)
    looks = looks_of(best["model"])
    tasks = list(dict.fromkeys(best["task"]))
    last = curves.groupby(["task", "model"], sort=False).tail(1).head(24)
    ends = [
        f"{row['model']} on {row['task']} {100 * (1 - row['survival']):.0f} %" for _, row in last.iterrows()
    ]
    alt = f"Share of lanes that reached the threshold by each step. By the end: {'; '.join(ends)}."
    figure = new_figure(width, (2.3 + 0.1 * len(looks)) * len(tasks) + 0.5 + 0.16 * len(looks), alt)
    rows = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
    for axes, task in zip(rows, tasks, strict=True):
        draw_time_panel(axes, best[best["task"] == task], curves[curves["task"] == task], looks)
        axes.set_title(wrapped(task, 60))
    rows[-1].set_xlabel("step")
    model_legend(figure, looks, lines=True, below=_TIME_LEGEND)
    return figure


def draw_time_panel(axes: Axes, times: pd.DataFrame, curves: pd.DataFrame, looks: dict[str, Look]) -> None:
    """One task's curves onto an axes: `times` of escape_times, `curves` of survival_curves."""
    end = float(times["time"].max())
    for place, (model, curve) in enumerate(curves.groupby("model", sort=False)):
        look = looks[str(model)]
        steps = np.concatenate([[0.0], curve["time"]])
        share, high, low = (
            1 - np.concatenate([[1.0], curve[name].to_numpy(float)]) for name in ("survival", "low", "high")
        )
        axes.step(steps, share, where="post", color=look.colour, ls=look.dash, lw=1.8)
        since = max(int(np.argmax(share > 0)), 0) if share.any() else len(share)
        axes.fill_between(
            steps[since:], low[since:], high[since:], step="post", color=look.colour, alpha=0.13, lw=0
        )
        reach = np.clip([[share[-1] - low[-1]], [high[-1] - share[-1]]], 0, 1)
        beside = end * (1.03 + 0.025 * place)
        axes.errorbar(beside, share[-1], yerr=reach, fmt="_", ms=4, color=look.colour, lw=1.3, capsize=2)
        _draw_lanes(axes, times[times["model"] == model], -0.08 - _ROW * place, look.colour)
    models = curves["model"].nunique()
    axes.set(
        xlim=(0, end * (1.04 + 0.025 * models)), ylim=(-0.1 - _ROW * models, 1.04), ylabel="share escaped"
    )
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_formatter(lambda x, _: short_number(x))
    axes.axhline(0, color="0.6", lw=0.6)


def _draw_lanes(axes: Axes, lanes: pd.DataFrame, height: float, colour: str) -> None:
    diverged = lanes["status"] == "diverged"
    for marker, which in (
        ("|", lanes["escaped"]),
        (">", ~lanes["escaped"] & ~diverged),
        ("x", ~lanes["escaped"] & diverged),
    ):
        x = np.sort(lanes.loc[which, "time"].to_numpy(float))
        if not len(x):
            continue
        # Lanes that tie stand a little apart, so that each shows.
        _, place, count = np.unique(x, return_inverse=True, return_counts=True)
        rank = np.arange(len(x)) - (np.cumsum(count) - count)[place]
        left = x - rank * 0.007 * float(lanes["time"].max())
        if marker == "|":
            left += (count[place] - 1) * 0.0035 * x.max()
        heights = np.full(len(x), height)
        axes.plot(left, heights, marker, color=colour, ms=4, mew=0.9, mfc="none", alpha=0.9)


@styled
def threshold_figure(
    lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None, width: float = WIDTH
) -> Figure:
    """A panel per task: the share of lanes solved at the chosen settings as a function of the threshold.

    Each step down is one seed's final accuracy. `chosen` of solved.choose_rates, whose own threshold is marked.
    """
    table = threshold_table(lanes, chosen)
    looks = looks_of(table["model"])
    tasks = list(dict.fromkeys(table["task"]))
    least = as_lanes(lanes, threshold)["accuracy"].astype(np.float64).min()
    start = max(0.0, np.floor(20 * least) / 20 - 0.05) if least < 1 else 0.0
    alt = f"Share of lanes solved against the threshold, on {', '.join(tasks[:24])}; each step is a seed."
    figure = new_figure(width, 1.9 * len(tasks) + 0.5 + 0.16 * len(looks), alt)
    rows = figure.subplots(len(tasks), 1, squeeze=False, sharex=True)[:, 0]
    for axes, task in zip(rows, tasks, strict=True):
        of_task = table[table["task"] == task]
        for model, curve in of_task.groupby("model", sort=False):
            look = looks[str(model)]
            x, share = curve["threshold"], curve["solved"] / curve["n"]
            axes.step(x, share, where="pre", color=look.colour, ls=look.dash, lw=1.8)
            if len(looks) <= _BANDS:
                bounds = (curve["wilson_low"], curve["wilson_high"])
                axes.fill_between(x, *bounds, step="pre", color=look.colour, alpha=0.1, lw=0)
        level = threshold if threshold is not None else chosen.loc[chosen["task"] == task, "threshold"].max()
        axes.axvline(level, color="0.35", ls="--", lw=0.8)
        axes.set(title=wrapped(task, 60), ylabel="share solved", xlim=(start, 1.005), ylim=(-0.04, 1.04))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    rows[-1].set_xlabel("threshold on final accuracy")
    model_legend(figure, looks, lines=True, below=_THRESHOLD_LEGEND)
    return figure
