"""Curves, ranges and metrics over the seeds of the chosen settings, one row per thing measured."""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import student

SUMMARY = ("measured", "mean", "half_width", "low_quarter", "median", "high_quarter")


def chosen_ids(lanes: pd.DataFrame, chosen: pd.DataFrame) -> list[str]:
    """The ids of the lanes at the chosen settings, in the order of settings.in_order."""
    return [str(lane) for lane in in_order(at_chosen(lanes, chosen))["id"]]


def curve_table(curves: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Training loss, loss and accuracy by step: task, model, step, `what`, and SUMMARY over the lanes.

    `curves` of sweeps.record.collect_curves. A diverged lane is in it as far as it was evaluated.
    """
    names = [name for name in ("train_loss", "loss", "accuracy") if name in curves.columns]
    long = curves[curves["id"].isin(chosen_ids(lanes, chosen))].melt(
        ["id", "task", "model", "step"], names, var_name="what", value_name="value"
    )
    return _summed(long, ["task", "model", "what", "step"], t_interval=False)


def metric_table(metrics: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Each metric at each test length and index: task, model, train_length, length, metric, index and SUMMARY."""
    best = metrics[metrics["id"].isin(chosen_ids(lanes, chosen))].dropna(subset=["value"])
    keys = ["task", "model", "train_length", "length", "metric", "index"]
    return _summed(best, keys, t_interval=True)


def range_table(
    ranges: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None
) -> pd.DataFrame:
    """Each tested range of lengths: task, model, shortest, length (the longest), `solved` of `n`, and SUMMARY."""
    best = at_chosen(mark_solved(lanes, threshold), chosen)
    found = ranges[ranges["id"].isin(best["id"])].rename(columns={"accuracy": "value"})
    keys = ["task", "model", "shortest", "length"]
    table = _summed(found, keys, t_interval=True)
    level = found["id"].map(best.set_index("id")["threshold"])
    sound = found["id"].map(best.set_index("id")["status"]) != "diverged"
    won = found.assign(solved=(found["value"] >= level) & sound).groupby(keys)["solved"].sum()
    counts = table.join(won, on=keys).merge(chosen[["task", "model", "n"]], on=["task", "model"], how="left")
    return counts[[*keys, "solved", "n", *SUMMARY]]


def _summed(long: pd.DataFrame, keys: list[str], *, t_interval: bool) -> pd.DataFrame:
    if long.empty:
        return pd.DataFrame(columns=pd.Index([*keys, *SUMMARY]))
    groups = long.astype({"value": float}).groupby(keys, sort=False)["value"]
    quarters = groups.quantile(np.array([0.25, 0.5, 0.75])).unstack()
    quarters.columns = pd.Index(["low_quarter", "median", "high_quarter"])
    table = quarters.assign(measured=groups.count(), mean=groups.mean())
    if t_interval:
        n = table["measured"]
        known = (n > 1) & (groups.min() < groups.max())
        table["half_width"] = (student(n.to_numpy() - 1) * groups.std() / np.sqrt(n)).where(known)
    columns = [name for name in SUMMARY if name in table.columns]
    return table[columns].reset_index()
