"""Accuracy beyond the training length, and the accuracy of guessing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import mean_interval

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
    best = in_order(at_chosen(lanes, chosen))[["id", "status", "threshold"]]
    return best.merge(lengths.sort_values("length", kind="stable"), on="id")


def length_table(
    lengths: pd.DataFrame, lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None
) -> pd.DataFrame:
    """One row per (task, model, length) at the chosen settings of solved.choose_rates, with COLUMNS.

    `solved` lanes of n have finished with accuracy at or above the threshold at that length. `n` counts every
    lane at the chosen setting, so one that diverged before it was tested counts as unsolved; `mean`,
    `half_width` and `median` are over the `measured` lanes.
    """
    n = chosen.set_index(["task", "model"])["n"].to_dict()
    tested = mark_solved(lengths_at_chosen(lengths, lanes, chosen), threshold)
    rows = []
    for (task, model, length), group in tested.groupby(["task", "model", "length"], sort=False):
        accuracy = mean_interval(group["accuracy"].to_numpy())
        median = float(group["accuracy"].median())
        counts = (n[task, model], int(group["solved"].sum()), accuracy.n)
        where = (task, model, length, group["train_length"].max())
        rows.append((*where, *counts, accuracy.mean, accuracy.half_width, median))
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def chance_levels(lanes: pd.DataFrame) -> dict[str, float]:
    """The accuracy of guessing, 1/c, of each task where its lanes reveal it.

    Scaled accuracy is s = (a − 1/c) / (1 − 1/c), so 1/c = (a − s) / (1 − s); lanes at a = 1 do not tell c.
    """
    accuracy, scaled = (lanes[name].astype(np.float64) for name in ("accuracy", "scaled_accuracy"))
    chance = ((accuracy - scaled) / (1 - scaled))[scaled < 1 - 1e-6]
    levels = chance.groupby(lanes["task"]).median()
    return {str(task): 1 / round(1 / level) for task, level in levels.items() if level > 0}
