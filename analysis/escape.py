"""When lanes solved their task: escape times, censored where training ended first.

A count of solved lanes at a fixed budget is one reading of a Kaplan–Meier curve at its right edge. A lane that
diverged never solves its task any more, so it stays in the count of those at risk until the budget's end (the
subdistribution of Fine and Gray, J. Am. Stat. Assoc. 94 (1999) 496) and is not taken for one cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from statelab.analysis.inference import holm
from statelab.analysis.settings import at_chosen, in_order, settings_of
from statelab.analysis.survival import (
    CURVE_COLUMNS,
    hazard_ratio,
    kaplan_meier,
    log_rank,
    median_time,
    restricted_mean,
)
from statelab.analysis.tidy import as_lanes, escape_steps

TIME_COLUMNS = ("task", "model", "n", "escaped", "median", "horizon", "restricted_mean", "half_width")
PAIR_COLUMNS = (
    "task",
    "first",
    "second",
    "same_setting",
    "log_rank",
    "log_rank_holm",
    "hazard_ratio",
    "low",
    "high",
)


def escape_times(
    lanes: pd.DataFrame, curves: pd.DataFrame | None = None, threshold: float | None = None
) -> pd.DataFrame:
    """The lanes with `time` (steps) and `escaped`: the first evaluation at or above the threshold, or the end.

    From the lanes' own `escape_step`, or from `curves` (one row per `id` and `step`) where they are given, which
    another threshold than the recorded needs. An unsolved lane's time is its `steps`. Raises ValueError where the
    columns do not tell.
    """
    known = as_lanes(lanes, threshold)
    if "steps" not in known.columns:
        raise ValueError("escape times need each lane's 'steps', the end of its training")
    if threshold is not None and curves is None and (known["threshold"] != threshold).any():
        raise ValueError(f"escape times at the threshold {threshold} need curves=, one row per id and step")
    if curves is not None:
        level = known.set_index("id")["threshold"] if threshold is None else None
        at = curves["id"].map(level) if level is not None else threshold
        found = escape_steps(curves, at, ["id"])  # type: ignore[arg-type]
        known = known.drop(columns="escape_step", errors="ignore").merge(found, on="id", how="left")
    elif "escape_step" not in known.columns:
        raise ValueError("escape times need the lanes' 'escape_step', or curves=, one row per id and step")
    step = known["escape_step"].astype(np.float64)
    return known.assign(time=step.fillna(known["steps"]).astype(np.float64), escaped=step.notna())


def survival_curves(times: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Kaplan–Meier curves at the chosen settings, tidy: task, model and survival.CURVE_COLUMNS.

    `times` of escape_times, `chosen` of solved.choose_rates or solved.fixed_rate.
    """
    parts = [
        kaplan_meier(group["time"], group["escaped"]).assign(task=task, model=model)
        for (task, model), group in _cells(times, chosen)
    ]
    columns = pd.Index(["task", "model", *CURVE_COLUMNS])
    return pd.concat(parts)[columns].reset_index(drop=True) if parts else pd.DataFrame(columns=columns)


def time_table(times: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """One row per (task, model) at the chosen settings, with TIME_COLUMNS; times in steps.

    `median` is the Kaplan–Meier median, NaN where fewer than half escaped. `restricted_mean` ± `half_width` is
    the mean time up to `horizon`, the shortest training among the task's models, so that all are comparable.
    """
    rows = []
    cells = _cells(times, chosen)
    horizons = {task: min(g["steps"].min() for (t, _), g in cells if t == task) for (task, _), _ in cells}
    for (task, model), group in cells:
        horizon = float(horizons[task])
        mean = restricted_mean(group["time"], group["escaped"], horizon)
        middle = median_time(kaplan_meier(group["time"], group["escaped"]))
        counts = (len(group), int(group["escaped"].sum()))
        rows.append((task, model, *counts, middle, horizon, mean.mean, mean.half_width))
    return pd.DataFrame(rows, columns=pd.Index(TIME_COLUMNS))


def time_differences(
    times: pd.DataFrame, chosen: pd.DataFrame, pairs: Sequence[tuple[str, str]] | None = None
) -> pd.DataFrame:
    """Every two models of a task, or those of `pairs`: log-rank p, Holm's over all rows, and the hazard ratio.

    Columns PAIR_COLUMNS; the ratio is of the first over the second. `same_setting` tells whether both were trained
    at one setting; where they were not, the ratio mixes the model's effect with the setting's (solved.fixed_rate
    compares at one rate).
    """
    rows = []
    settings = chosen.set_index(["task", "model"])[settings_of(chosen)]
    cells = dict(_cells(times, chosen))
    for (task, first), (other, second) in combinations(cells, 2):
        if task != other or (pairs is not None and (first, second) not in pairs):
            continue
        sides = [cells[task, model] for model in (first, second)]
        data = [side[name].to_numpy() for side in sides for name in ("time", "escaped")]
        same = settings.loc[[(task, first), (task, second)]].drop_duplicates().shape[0] == 1
        ratio = hazard_ratio(*data)
        rows.append((task, first, second, same, log_rank(*data), np.nan, ratio.ratio, ratio.low, ratio.high))
    table = pd.DataFrame(rows, columns=pd.Index(PAIR_COLUMNS))
    return table.assign(log_rank_holm=holm(table["log_rank"].to_list()))


def _cells(times: pd.DataFrame, chosen: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    best = in_order(at_chosen(times, chosen))
    groups = best.groupby(["task", "model"], sort=False)
    return [((str(task), str(model)), group) for (task, model), group in groups]
