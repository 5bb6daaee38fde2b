"""Differences between models at their chosen settings, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from statelab.analysis.inference import (
    RESAMPLES,
    bootstrap_interval,
    boschloo_test,
    holm,
    mcnemar_test,
    sign_flip_test,
)
from statelab.analysis.settings import at_chosen
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import paired_difference

COLUMNS = (
    "task",
    "first",
    "second",
    "difference",
    "half_width",
    "bca_low",
    "bca_high",
    "pairs",
    "unmatched",
    "solved_first",
    "n_first",
    "solved_second",
    "n_second",
    "p_sign_flip",
    "p_mcnemar",
    "p_boschloo",
    "p_sign_flip_holm",
    "p_mcnemar_holm",
    "p_boschloo_holm",
)
TESTS = ("p_sign_flip", "p_mcnemar", "p_boschloo")
_MANY = 200
"""With more pairs than this each is resampled a tenth as often, so that a large study takes seconds."""


def paired_differences(
    lanes: pd.DataFrame,
    chosen: pd.DataFrame,
    reference: str | None = None,
    threshold: float | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> pd.DataFrame:
    """First − second in accuracy, for every two models of a task at their settings of solved.choose_rates.

    With a `reference` model, each other model (first) against it (second); with `pairs` (first, second), those
    that a task has. One row per pair with COLUMNS: `difference` ± `half_width` (fractions) over `pairs` seeds, and
    its bounds by the BCa bootstrap; `unmatched` seeds are left out. The solved counts are of all lanes. p-values:
    sign flips of the paired differences, exact McNemar on the paired solved flags, Boschloo on the solved counts
    unpaired; `_holm` is adjusted for all rows. Raises ValueError for a reference that no task has.
    """
    models = list(chosen["model"].unique())
    if reference is not None and reference not in models:
        raise ValueError(f"unknown reference model '{reference}'; known: {', '.join(models)}")
    best = mark_solved(at_chosen(lanes, chosen), threshold)
    rows: list[dict[str, object]] = []
    resamples = (
        RESAMPLES if len(chosen) * chosen.groupby("task").size().max() < 2 * _MANY else RESAMPLES // 10
    )
    for task, of_task in chosen.groupby("task", sort=False):
        of_models = best[best["task"] == task].groupby("model")
        sides = {model: of_models.get_group(model).set_index("seed") for model in of_task["model"]}
        of_task_pairs = _pairs(list(sides), reference) if pairs is None else pairs
        for first, second in (pair for pair in of_task_pairs if set(pair) <= set(sides)):
            rows.append({"task": task} | _difference(first, second, sides, resamples))
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS))
    return table.assign(**{f"{name}_holm": holm(table[name].to_list()) for name in TESTS})


def _pairs(models: list[str], reference: str | None) -> list[tuple[str, str]]:
    if reference is None:
        return list(combinations(models, 2))
    return [(model, reference) for model in models if reference in models and model != reference]


def _difference(first: str, second: str, sides: dict[str, pd.DataFrame], resamples: int) -> dict[str, object]:
    a, b = sides[first], sides[second]
    paired = paired_difference(a["accuracy"], b["accuracy"])
    low, high = bootstrap_interval(paired.values, resamples)
    seeds = a.index.intersection(b.index)
    solved_first, solved_second = int(a["solved"].sum()), int(b["solved"].sum())
    return {
        "first": first,
        "second": second,
        "difference": paired.difference.mean,
        "half_width": paired.difference.half_width,
        "bca_low": low,
        "bca_high": high,
        "pairs": paired.difference.n,
        "unmatched": paired.unmatched,
        "solved_first": solved_first,
        "n_first": len(a),
        "solved_second": solved_second,
        "n_second": len(b),
        "p_sign_flip": sign_flip_test(paired.values, resamples),
        "p_mcnemar": mcnemar_test(a.loc[seeds, "solved"], b.loc[seeds, "solved"]),
        "p_boschloo": boschloo_test(solved_first, len(a), solved_second, len(b)),
    }
