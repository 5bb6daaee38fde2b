"""A lane's *setting*: its learning rate, and whichever other settings take several values within a model.

What varies only between (task, model) pairs is no choice that was made, and so no part of a setting.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

SETTINGS = (
    "learning_rate",
    "weight_decay",
    "beta1",
    "beta2",
    "eps",
    "clip",
    "warmup",
    "floor",
    "schedule",
    "steps",
    "batch",
    "arithmetic",
    "length",
)


def setting_columns(lanes: pd.DataFrame) -> list[str]:
    """The columns of `lanes` (sweeps.record.collect) that make a setting; `learning_rate` always."""
    found = [name for name in SETTINGS if name in lanes.columns]
    # Most have one value in the whole study, which is quicker to see than a model's own.
    varied = [name for name in found if name != "learning_rate" and lanes[name].nunique(dropna=False) > 1]
    if varied:
        values = lanes.groupby(["task", "model"])[varied].nunique(dropna=False)
        varied = [name for name in varied if (values[name] > 1).any()]
    return [name for name in found if name == "learning_rate" or name in varied]


def in_order(lanes: pd.DataFrame) -> pd.DataFrame:
    """The lanes with tasks and models as they first appear (the spec's order), and settings ascending."""
    ranks = [pd.Series(pd.factorize(lanes[name])[0], lanes.index, name=name) for name in ("task", "model")]
    keys = pd.concat([*ranks, lanes[setting_columns(lanes)]], axis=1)
    return lanes.loc[keys.sort_values([str(name) for name in keys], kind="stable").index]


def settings_of(table: pd.DataFrame) -> list[str]:
    """The columns that make a setting in a table of solved.solved_table or solved.choose_rates."""
    return [name for name in SETTINGS if name in table.columns]


def setting_name(row: pd.Series, columns: list[str]) -> str:
    """A setting as a person writes it: the rate, then the others by name, "0.001 weight_decay=0.1"."""
    rest = [f"{name}={_short(row[name])}" for name in columns if name != "learning_rate"]
    return " ".join([_short(row["learning_rate"]), *rest])


def at_chosen(lanes: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The lanes trained at the chosen setting (solved.choose_rates) of their (task, model)."""
    keys = ["task", "model", *settings_of(chosen)]
    return lanes.merge(chosen[keys], on=keys)


def _short(value: object) -> str:
    if isinstance(value, float | np.floating):
        return "none" if np.isnan(value) else f"{value:.3g}"
    return "none" if value is None else str(value)
