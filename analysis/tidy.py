"""Lanes and curves that come from elsewhere: any tidy frame, made complete for the functions of this package.

A study's own records have every column. A frame of another laboratory's runs needs `model`, `seed` and
`accuracy`, and `threshold` or a threshold given with it; what else it lacks is filled with what says nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

NEEDED = ("model", "seed", "accuracy")
_FILLED: dict[str, Any] = {
    "study": "",
    "task": "all",
    "learning_rate": np.nan,
    "status": "finished",
    "length": np.nan,
    "scaled_accuracy": np.nan,
}


def as_lanes(frame: pd.DataFrame, threshold: float | None = None) -> pd.DataFrame:
    """One row per lane with all that solved counts need, as sweeps.record.collect gives it.

    `accuracy` is a fraction, NaN for a lane that left none. Added where absent: `task` "all", `status`
    "finished", `learning_rate` NaN, `id` from task, model, rate and seed. Raises ValueError where a column
    is needed that neither the frame nor `threshold` gives.
    """
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise ValueError(
            f"lanes need the columns {', '.join(NEEDED)}; {', '.join(missing)} missing from: "
            f"{', '.join(map(str, frame.columns))}"
        )
    if threshold is None and "threshold" not in frame.columns:
        raise ValueError("lanes have no column 'threshold': give threshold=, an accuracy in (0, 1]")
    added = {name: value for name, value in _FILLED.items() if name not in frame.columns}
    if "threshold" not in frame.columns:
        added["threshold"] = threshold
    lanes = frame.assign(**added) if added else frame
    if "id" not in lanes.columns:
        keys = zip(*(lanes[name] for name in ("task", "model", "learning_rate", "seed")), strict=True)
        lanes = lanes.assign(id=["/".join(map(str, key)) for key in keys])
    return lanes


def lanes_of_curves(curves: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """One row per lane from its evaluations: final accuracy, `escape_step`, `steps` (its last), `threshold`.

    `curves` has a row per evaluation with `model`, `seed`, `step`, `accuracy`, and whatever else tells lanes
    apart (`task`, `learning_rate`, …), constant within a lane; `id`, if there, is the lane's own. Columns of
    evaluations (`loss`, `train_loss`) keep their last value.
    """
    missing = [name for name in (*NEEDED, "step") if name not in curves.columns]
    if missing:
        raise ValueError(f"curves need the columns {', '.join((*NEEDED, 'step'))}; missing: {missing}")
    measured = ("step", "accuracy", "loss", "train_loss")
    keys = ["id"] if "id" in curves.columns else [str(n) for n in curves.columns if n not in measured]
    ordered = curves.sort_values("step", kind="stable")
    last = ordered.groupby(keys, sort=False, dropna=False).tail(1).rename(columns={"step": "steps"})
    first = escape_steps(ordered, threshold, keys)
    lanes = last.merge(first, on=keys, how="left").assign(threshold=threshold)
    return as_lanes(lanes, threshold)


def escape_steps(curves: pd.DataFrame, threshold: float | pd.Series, keys: list[str]) -> pd.DataFrame:
    """The first step at which each lane that ever does is at or above the threshold: `keys` and escape_step."""
    above = curves[curves["accuracy"].astype(np.float64) >= threshold].sort_values("step", kind="stable")
    first = above.drop_duplicates(keys)[[*keys, "step"]]
    return first.rename(columns={"step": "escape_step"})
