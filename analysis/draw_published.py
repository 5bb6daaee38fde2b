"""Our figures beside published ones: means with intervals, and our seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from statelab.analysis.settings import at_chosen
from statelab.analysis.solved import mark_solved
from statelab.analysis.style import WIDTH, new_figure, reading, styled, wrapped

_LEGEND = (
    "● ours, with 95 % interval and each seed (grey) · ◇ published, with its interval where one was given"
)


@styled
def published_figure(
    compared: pd.DataFrame,
    lanes: pd.DataFrame,
    lengths: pd.DataFrame,
    chosen: pd.DataFrame,
    width: float = WIDTH,
) -> Figure:
    """A line per published figure of published.compare_published, ours above and theirs below."""
    best = at_chosen(mark_solved(lanes), chosen)
    words = []
    for _, row in compared.head(24).iterrows():
        pair = [
            f"{100 * row[name]:.1f} %" if row[name] == row[name] else "none" for name in ("our_mean", "mean")
        ]
        words.append(f"{row['model']} on {row['task']} ours {pair[0]}, published {pair[1]}")
    figure = new_figure(
        width, 0.55 * len(compared) + 1.1, f"Ours beside published figures: {'; '.join(words)}."
    )
    reading(figure, _LEGEND)
    axes = figure.subplots()
    names = []
    for place, (_, row) in enumerate(compared.iterrows()):
        source = (
            best
            if np.isnan(row["length"])
            else lengths[(lengths["length"] == row["length"]) & lengths["id"].isin(best["id"])]
        )
        seeds = source[(source["task"] == row["task"]) & (source["model"] == row["model"])]
        _draw_row(axes, place, row, seeds[row["measure"]].to_numpy(np.float64))
        at = "" if np.isnan(row["length"]) else f" at {row['length']:g}"
        names.append(f"{wrapped(row['model'], 24)}\n{wrapped(row['task'] + at, 24)}")
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(" or ".join(m.replace("_", " ") for m in dict.fromkeys(compared["measure"])))
    return figure


def _draw_row(axes: Axes, place: int, row: pd.Series, seeds: np.ndarray) -> None:
    known = seeds[~np.isnan(seeds)]
    spread = np.linspace(-0.34, -0.1, len(known)) if len(known) > 1 else np.full(len(known), -0.2)
    axes.scatter(known, place + spread, s=9, color="0.6", linewidths=0)
    for mean, half, at, marker, colour, face in (
        (row["our_mean"], row["our_half_width"], -0.05, "o", "#0072b2", "#0072b2"),
        (row["mean"], row["half_width"], 0.25, "D", "black", "white"),
    ):
        if not np.isnan(mean):
            reach = None if np.isnan(half) else half
            axes.errorbar(
                mean, place + at, xerr=reach, fmt=marker, ms=5, color=colour, mfc=face, lw=1.5, capsize=3
            )
