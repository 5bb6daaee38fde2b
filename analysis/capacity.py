"""What accuracy costs: floats of state, parameters, and seconds of a lane's training."""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen, in_order
from statelab.analysis.solved import mark_solved

COSTS = ("state_size", "seconds")
COLUMNS = (
    "task",
    "model",
    "state_size",
    "parameters",
    "seconds",
    "n",
    "solved",
    "median",
    "best_for_state_size",
    "best_for_seconds",
)


def capacity_table(lanes: pd.DataFrame, chosen: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """One row per (task, model) at the chosen settings, with COLUMNS; `seconds` is the median lane's.

    `best_for_…` marks the models on the Pareto line: none of the task is at once as cheap and more accurate in
    the median. `state_size` is NaN where it grows with the length (attention), which no line includes.
    """
    best = in_order(at_chosen(mark_solved(lanes, threshold), chosen))
    rows = []
    for (task, model), group in best.groupby(["task", "model"], sort=False):
        cost = {name: _median(group, name) for name in ("state_size", "parameters", "seconds")}
        counts = {"n": len(group), "solved": int(group["solved"].sum())}
        rows.append({"task": task, "model": model, **cost, **counts, "median": group["accuracy"].median()})
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS[:-2]))
    for name in COSTS:
        marks = [pareto(of_task[name], of_task["median"]) for _, of_task in table.groupby("task", sort=False)]
        table[f"best_for_{name}"] = pd.concat(marks) if marks else pd.Series(dtype=bool)
    return table


def pareto(cost: pd.Series, value: pd.Series) -> pd.Series:
    """Which rows no other beats: as cheap or cheaper with more value, or cheaper with as much. NaN never is."""
    c, v = cost.to_numpy(np.float64), value.to_numpy(np.float64)
    with np.errstate(invalid="ignore"):
        beats = ((c[:, None] <= c) & (v[:, None] > v)) | ((c[:, None] < c) & (v[:, None] >= v))
    known = ~(np.isnan(c) | np.isnan(v))
    return pd.Series(known & ~beats.any(axis=0), cost.index)


def _median(group: pd.DataFrame, name: str) -> float:
    return float(group[name].astype(np.float64).median()) if name in group.columns else np.nan
