"""Who solved what, and at which rate: solved counts of every setting, and the chosen one of each model.

Accuracies are fractions in [0, 1]; NaN where a lane left none.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen, in_order, setting_columns, settings_of
from statelab.analysis.statistics import interquartile_mean, mean_interval, wilson_interval
from statelab.analysis.tidy import as_lanes

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
    "iqm",
)


def mark_solved(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """The lanes with a column `solved`: finished, and accurate to the threshold (default: the lane's own)."""
    lanes = as_lanes(lanes, threshold)
    level = lanes["threshold"] if threshold is None else threshold
    # A frame whose lanes all lack an accuracy holds None, not NaN.
    accuracy = lanes["accuracy"].astype(np.float64)
    solved = (accuracy >= level) & (lanes["status"] != "diverged")
    return lanes.assign(threshold=level, accuracy=accuracy, solved=solved)


def solved_table(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """One row per (task, model, setting) in the order of settings.in_order, with the columns of SUMMARY.

    A diverged lane counts as unsolved, and in the mean with the accuracy it last recorded; `diverged` counts
    them apart. `measured` lanes of n left an accuracy; `mean`, `half_width` (statistics.MeanInterval), `median`
    and `iqm` (the inter-quartile mean) are over those. `wilson_low` and `wilson_high` bound the share solved.
    `lanes` may come from anywhere: tidy.as_lanes.
    """
    marked = mark_solved(lanes, threshold)
    keys = ["task", "model", *setting_columns(marked)]
    groups = in_order(marked).groupby(keys, dropna=False, sort=False)
    rows = [dict(zip(keys, key, strict=True)) | _summary(group) for key, group in groups]
    return pd.DataFrame(rows, columns=pd.Index([*keys, *SUMMARY]))


def choose_rates(lanes: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """The chosen row of solved_table per (task, model): most solved, then highest mean, then smallest rate.

    Adds `tried`, the number of settings it was chosen among, and `edge`: "lowest" or "highest" where the
    chosen rate is the first or last of several, so that a better one may lie beyond; else "".
    """
    return choose_from(solved_table(lanes, threshold))


def choose_from(table: pd.DataFrame) -> pd.DataFrame:
    """choose_rates of a solved_table that is there already."""
    settings = settings_of(table)
    ascending = [False, False, *[True] * len(settings)]
    ranked = table.sort_values(["solved", "mean", *settings], ascending=ascending, kind="stable")
    chosen = ranked.drop_duplicates(["task", "model"]).sort_index().reset_index(drop=True)
    rates = table.groupby(["task", "model"], sort=False)["learning_rate"]
    grid = rates.agg(["size", "min", "max"]).reset_index()
    rate, several = chosen["learning_rate"], grid["min"] < grid["max"]
    edges = [several & (rate == grid["min"]), several & (rate == grid["max"])]
    return chosen.assign(tried=grid["size"], edge=np.select(edges, ["lowest", "highest"], ""))


def fixed_rate(lanes: pd.DataFrame, rate: float, threshold: float | None = None) -> pd.DataFrame:
    """The rows of choose_rates with one learning rate for every model, chosen by nobody.

    Where other settings vary too, the best of them at this rate. Raises ValueError for a rate no lane has.
    """
    known = as_lanes(lanes, threshold)
    at_rate = known[np.isclose(known["learning_rate"].astype(np.float64), rate, rtol=1e-9, atol=0)]
    if at_rate.empty:
        rates = ", ".join(f"{value:.3g}" for value in sorted(set(known["learning_rate"])))
        raise ValueError(f"no lane was trained at the rate {rate:.3g}; known: {rates}")
    return choose_from(solved_table(at_rate, threshold))


def threshold_table(lanes: pd.DataFrame, chosen: pd.DataFrame, steps: int = 100) -> pd.DataFrame:
    """How the solved counts at the chosen settings depend on the threshold, 0 to 1 in `steps` steps.

    One row per (task, model, threshold): `solved` of `n` with Wilson bounds `wilson_low`, `wilson_high`.
    """
    best = in_order(at_chosen(mark_solved(lanes, threshold=1.0), chosen))
    rows = []
    for (task, model), group in best.groupby(["task", "model"], sort=False):
        accuracy = group["accuracy"].where(group["status"] != "diverged", -np.inf).to_numpy()
        for level in np.arange(steps + 1) / steps:
            solved = int((accuracy >= level).sum())
            bounds = wilson_interval(solved, len(group))
            rows.append((task, model, level, solved, len(group), *bounds))
    names = ["task", "model", "threshold", "solved", "n", "wilson_low", "wilson_high"]
    return pd.DataFrame(rows, columns=pd.Index(names))


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
        "iqm": interquartile_mean(group["accuracy"].to_numpy()),
    }
