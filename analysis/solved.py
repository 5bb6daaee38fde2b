"""Who solved what, and at which rate: solved counts of every setting, and the chosen one of each model.

Accuracies are fractions in [0, 1]; NaN where a lane left none.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import in_order, setting_columns, settings_of
from statelab.analysis.statistics import mean_interval, wilson_interval

SUMMARY = (
    "threshold",
    "n",
    "solved",
    "diverged",
    "wilson_low",
    "wilson_high",
    "measured",
    "mean",
    "half_width",
    "median",
)


def mark_solved(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """The lanes with a column `solved`: finished, and accurate to the threshold (default: the lane's own)."""
    level = lanes["threshold"] if threshold is None else threshold
    # A frame whose lanes all lack an accuracy holds None, not NaN.
    accuracy = lanes["accuracy"].astype(np.float64)
    solved = (accuracy >= level) & (lanes["status"] != "diverged")
    return lanes.assign(threshold=level, accuracy=accuracy, solved=solved)


def solved_table(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """One row per (task, model, setting) in the order of settings.in_order, with the columns of SUMMARY.

    A diverged lane counts as unsolved, and in the mean with the accuracy it last recorded; `diverged` counts
    them apart. `measured` lanes of n left an accuracy; `mean`, `half_width` (statistics.MeanInterval) and
    `median` are over those. `wilson_low` and `wilson_high` bound the share solved.
    """
    keys = ["task", "model", *setting_columns(lanes)]
    groups = in_order(mark_solved(lanes, threshold)).groupby(keys, dropna=False, sort=False)
    rows = [dict(zip(keys, key, strict=True)) | _summary(group) for key, group in groups]
    return pd.DataFrame(rows, columns=pd.Index([*keys, *SUMMARY]))


def choose_rates(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """The chosen row of solved_table per (task, model): most solved, then highest mean, then smallest rate.

    Adds `tried`, the number of settings it was chosen among, and `edge`: "lowest" or "highest" where the
    chosen rate is the first or last of several, so that a better one may lie beyond; else "".
    """
    table = solved_table(lanes, threshold)
    settings = settings_of(table)
    ascending = [False, False, *[True] * len(settings)]
    ranked = table.sort_values(["solved", "mean", *settings], ascending=ascending, kind="stable")
    chosen = ranked.drop_duplicates(["task", "model"]).sort_index().reset_index(drop=True)
    rates = table.groupby(["task", "model"], sort=False)["learning_rate"]
    grid = rates.agg(["size", "min", "max"]).reset_index()
    rate, several = chosen["learning_rate"], grid["min"] < grid["max"]
    edges = [several & (rate == grid["min"]), several & (rate == grid["max"])]
    return chosen.assign(tried=grid["size"], edge=np.select(edges, ["lowest", "highest"], ""))


def _summary(group: pd.DataFrame) -> dict[str, float]:
    n, solved = len(group), int(group["solved"].sum())
    accuracy = mean_interval(group["accuracy"].to_numpy())
    low, high = wilson_interval(solved, n)
    return {
        "threshold": float(group["threshold"].max()),
        "n": n,
        "solved": solved,
        "diverged": int((group["status"] == "diverged").sum()),
        "wilson_low": low,
        "wilson_high": high,
        "measured": accuracy.n,
        "mean": accuracy.mean,
        "half_width": accuracy.half_width,
        "median": float(group["accuracy"].median()),
    }
