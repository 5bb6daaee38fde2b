"""Accuracy beyond the training length, and the accuracy of guessing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import mean_interval
from statelab.analysis.tidy import as_lanes

COLUMNS = (
    "task",
    "model",
    "length",
    "train_length",
    "n",
    "solved",
    "measured",
    "mean",
    "half_width",
    "median",
)


def lengths_at_chosen(lengths: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The rows of `lengths` (sweeps.record.collect_lengths) of lanes at the chosen settings.

    `status` and `threshold` of the lane are added; lanes stand in the order of settings.in_order.
    """
    best = in_order(at_chosen(as_lanes(lanes), chosen))[["id", "status", "threshold"]]
    return best.merge(lengths.sort_values("length", kind="stable"), on="id")


def length_table(
    lengths: pd.DataFrame,
    lanes: pd.DataFrame,
    chosen: pd.DataFrame,
    threshold: float | None = None,
    value: str = "accuracy",
) -> pd.DataFrame:
    """One row per (task, model, length) at the chosen settings of solved.choose_rates, with COLUMNS.

    `solved` lanes of n have finished with accuracy at or above the threshold at that length. `n` counts every
    lane at the chosen setting, so one that diverged before it was tested counts as unsolved; `mean`,
    `half_width` and `median` are of the column `value` over the `measured` lanes.
    """
    n = chosen.set_index(["task", "model"])["n"].to_dict()
    tested = mark_solved(lengths_at_chosen(lengths, lanes, chosen), threshold)
    rows = []
    for (task, model, length), group in tested.groupby(["task", "model", "length"], sort=False):
        accuracy = mean_interval(group[value].to_numpy())
        median = float(group[value].median())
        counts = (n[task, model], int(group["solved"].sum()), accuracy.n)
        where = (task, model, length, group["train_length"].max())
        rows.append((*where, *counts, accuracy.mean, accuracy.half_width, median))
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def reach_table(by_length: pd.DataFrame) -> pd.DataFrame:
    """How far each model of a length_table holds: the longest tested length up to which half its lanes are solved.

    One row per (task, model): `reach` is NaN where fewer than half are solved at the shortest length tested from
    the training length on; `tested` is the longest tested, so a reach of that may go further.
    """
    rows = []
    for (task, model), group in by_length.groupby(["task", "model"], sort=False):
        trained = group["train_length"].max()
        after = group[group["length"] >= trained] if (group["length"] >= trained).any() else group
        held = (2 * after["solved"] >= after["n"]) & (after["n"] > 0)
        ordered = after.assign(held=held).sort_values("length")
        unbroken = ordered[ordered["held"].cummin()]
        reach = float(unbroken["length"].max()) if len(unbroken) else np.nan
        rows.append((task, model, trained, reach, int(group["length"].max())))
    return pd.DataFrame(rows, columns=pd.Index(["task", "model", "train_length", "reach", "tested"]))


def with_prefix_exact(lengths: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The lengths with a column `prefix_exact`: the share of rows without a mistake up to their end.

    `metrics` of sweeps.record.collect_metrics; NaN where the metric was not asked for.
    """
    found = metrics[metrics["metric"] == "prefix_exact"].sort_values("index", kind="stable")
    whole = found.drop_duplicates(["id", "length"], keep="last")[["id", "length", "value"]]
    return lengths.merge(whole.rename(columns={"value": "prefix_exact"}), on=["id", "length"], how="left")


def chance_levels(lanes: pd.DataFrame) -> dict[str, float]:
    """The accuracy of guessing, 1/c, of each task where its lanes reveal it.

    Scaled accuracy is s = (a − 1/c) / (1 − 1/c), so 1/c = (a − s) / (1 − s); lanes at a = 1 do not tell c.
    """
    accuracy, scaled = (lanes[name].astype(np.float64) for name in ("accuracy", "scaled_accuracy"))
    chance = ((accuracy - scaled) / (1 - scaled))[scaled < 1 - 1e-6]
    levels = chance.groupby(lanes["task"]).median()
    return {str(task): 1 / round(1 / level) for task, level in levels.items() if level > 0}
