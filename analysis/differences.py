"""Differences between models at their chosen settings, paired by seed."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from statelab.analysis.settings import at_chosen
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import paired_difference

COLUMNS = (
    "task",
    "first",
    "second",
    "difference",
    "half_width",
    "pairs",
    "unmatched",
    "solved_first",
    "n_first",
    "solved_second",
    "n_second",
)


def paired_differences(
    lanes: pd.DataFrame, chosen: pd.DataFrame, reference: str | None = None, threshold: float | None = None
) -> pd.DataFrame:
    """First − second in accuracy, for every two models of a task at their settings of solved.choose_rates.

    With a `reference` model, each other model (first) against it (second). One row per pair with COLUMNS:
    `difference` ± `half_width` (fractions) over `pairs` seeds; `unmatched` seeds are left out; the solved
    counts are of all lanes. Raises ValueError for a reference that no task has.
    """
    models = list(chosen["model"].unique())
    if reference is not None and reference not in models:
        raise ValueError(f"unknown reference model '{reference}'; known: {', '.join(models)}")
    best = mark_solved(at_chosen(lanes, chosen), threshold)
    rows = []
    for task, of_task in chosen.groupby("task", sort=False):
        of_models = best[best["task"] == task].groupby("model")
        sides = {model: of_models.get_group(model).set_index("seed") for model in of_task["model"]}
        for first, second in _pairs(list(sides), reference):
            rows.append({"task": task} | _difference(first, second, sides))
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def _pairs(models: list[str], reference: str | None) -> list[tuple[str, str]]:
    if reference is None:
        return list(combinations(models, 2))
    return [(model, reference) for model in models if reference in models and model != reference]


def _difference(first: str, second: str, sides: dict[str, pd.DataFrame]) -> dict[str, object]:
    paired = paired_difference(sides[first]["accuracy"], sides[second]["accuracy"])
    return {
        "first": first,
        "second": second,
        "difference": paired.difference.mean,
        "half_width": paired.difference.half_width,
        "pairs": paired.difference.n,
        "unmatched": paired.unmatched,
        "solved_first": int(sides[first]["solved"].sum()),
        "n_first": len(sides[first]),
        "solved_second": int(sides[second]["solved"].sum()),
        "n_second": len(sides[second]),
    }
