"""The sentences under a table: how to read it, and what it cannot say."""

from __future__ import annotations

import pandas as pd

from statelab.analysis.render import MOST_DIFFERENCES
from statelab.analysis.settings import settings_of

RULE = (
    "* The chosen rate of a model on a task: most lanes solved, then the highest mean accuracy, then the "
    "smaller rate."
)

READING = (
    "±: half-width of the 95 % t-interval of the mean over seeds; none for one seed or equal accuracies. "
    "95 %: Wilson interval of the share solved. "
    "A diverged lane counts as unsolved, with the accuracy it last recorded."
)

METHODS = (
    "Intervals of shares are Wilson's. Means have Student's t-interval, paired differences also the BCa bootstrap at "
    "expanded quantiles: in simulation it holds the true mean 94 to 95 % of the time with 24 seeds, and 93 to 98 % "
    "with 8. It leaves out what no interval of few seeds can know: a rare failure that none of them met.",
    "8 of 8 solved still allows a true rate of 68 %, and 0 of 8 one of 32 %. Two models of 8 seeds differ at p < 0.05 "
    "by McNemar's test only if at least 6 seeds are solved by one alone.",
)

EMPTY = "No lane of this study has finished yet, so there is nothing to report."


def study_notes(
    lanes: pd.DataFrame,
    table: pd.DataFrame,
    chosen: pd.DataFrame,
    wanted: int | None = None,
    rule: str | None = None,
) -> list[str]:
    """What to know of the solved table: one lane, all diverged, all solved, unequal or missing lanes.

    `wanted` is how many lanes the study asks for, where known; `rule` how it chose its settings, where it did so
    on seeds that are not among these lanes.
    """
    candidates = [
        _progress(len(lanes), wanted),
        _few(lanes),
        _all_diverged(lanes),
        _outcome(table),
        _unequal(table),
        _unmeasured(table),
        READING,
        *([rule] if rule else (RULE if chosen["tried"].max() > 1 else "", _tried(chosen), _edges(chosen))),
    ]
    return [note for note in candidates if note]


def difference_notes(table: pd.DataFrame) -> list[str]:
    """How many comparisons there are, the seeds without a partner, and where the rows are if not shown."""
    if table.empty:
        return []
    notes = []
    if len(table) > MOST_DIFFERENCES:
        notes.append(f"The {len(table)} differences between models are in differences.csv.")
    if len(table) > 1:
        notes.append(
            f"Each of {len(table)} differences has its own 95 % interval: 1 in 20 misses by chance. The p-values are "
            "Holm's for all of them."
        )
    notes.append(
        "p: sign-flip test of the paired differences; p solved: McNemar's exact test on the paired seeds. With few "
        f"seeds neither can be small: with {int(table['pairs'].max())} pairs, not below "
        f"{2 / 2 ** int(table['pairs'].max()):.2g} before Holm's correction."
    )
    if unmatched := int(table["unmatched"].sum()):
        notes.append(f"Left out of differences: seeds that only one of two models has, {unmatched} in all.")
    return notes


def time_notes(table: pd.DataFrame, pairs: pd.DataFrame) -> list[str]:
    """What times mean where nobody or everybody escaped at once, and which ratios mix rates."""
    notes = [
        "Times are those of evaluations, so they are late by up to the time between two. A lane that diverged stays in "
        "the count until the end."
    ]
    if not table["escaped"].any():
        notes.append("No lane reached the threshold, so there is no time to solve.")
    if len(pairs) and not pairs["same_setting"].all():
        notes.append("†: the two were trained at different rates, so the ratio is not the model's alone.")
    if len(pairs):
        notes.append("Log-rank p-values are Holm's over all rows; hazard ratios are Cox's with Efron's ties.")
    return notes


def rate_notes(chosen: pd.DataFrame) -> list[str]:
    """How the rates were chosen, and where a better one may lie beyond."""
    return [note for note in (RULE, _tried(chosen), _edges(chosen)) if note]


def length_notes(table: pd.DataFrame) -> list[str]:
    """Whether there is a curve to see at all, and what the counts are."""
    if table.empty:
        return ["No accuracy by length was recorded, so there is no length figure."]
    notes = ["By length: mean accuracy, and the lanes at or above the threshold at that length."]
    if table["length"].nunique() == 1:
        notes.append(f"One length only was tested, {table['length'].iloc[0]}: points, not curves.")
    missing = table.assign(missing=table["n"] - table["measured"]).groupby(["task", "model"])["missing"].max()
    if (count := int(missing.sum())) > 0:
        notes.append(f"{_lanes(count)} left no accuracy at some length: unsolved there, not in the mean.")
    return notes


def _progress(finished: int, wanted: int | None) -> str:
    if wanted is None or finished >= wanted:
        return ""
    return f"So far {finished} of {wanted} lanes have finished."


def _few(lanes: pd.DataFrame) -> str:
    if len(lanes) == 1:
        return "One lane has finished. A single seed says nothing of the spread between seeds."
    if lanes["seed"].nunique() == 1:
        return "All lanes have one seed, which says nothing of the spread between seeds."
    return ""


def _all_diverged(lanes: pd.DataFrame) -> str:
    if not (lanes["status"] == "diverged").all():
        return ""
    return f"Every lane diverged ({_lanes(len(lanes))}). Try smaller rates, a longer warm-up or clipping."


def _outcome(table: pd.DataFrame) -> str:
    if (table["solved"] == table["n"]).all():
        return "Every lane solved its task: solved counts cannot tell models apart; a harder task could."
    if (table["solved"] == 0).all() and (table["diverged"] < table["n"]).any():
        return "No lane solved its task. More steps, other rates or a shorter length may help."
    return ""


def _unequal(table: pd.DataFrame) -> str:
    low, high = table["n"].min(), table["n"].max()
    return f"Settings have {low} to {high} lanes; counts are compared as they stand." if low < high else ""


def _unmeasured(table: pd.DataFrame) -> str:
    missing = int((table["n"] - table["measured"]).sum())
    return f"{_lanes(missing)} left no accuracy: unsolved, and not in the mean." if missing else ""


def _tried(chosen: pd.DataFrame) -> str:
    low, high = chosen["tried"].min(), chosen["tried"].max()
    if high == 1:
        return "One rate was tried for each model, so none was chosen."
    count = f"{high}" if low == high else f"{low} to {high}"
    what = "rates" if settings_of(chosen) == ["learning_rate"] else "settings"
    return (
        f"It was chosen among {count} {what}, on the same seeds as are reported, which flatters every model; "
        "to confirm it, run the chosen rates on fresh seeds."
    )


def _edges(chosen: pd.DataFrame) -> str:
    at_edge = chosen[(chosen["edge"] != "") & chosen["mean"].notna()]
    if at_edge.empty:
        return ""
    if len(at_edge) == len(chosen):
        return "Every chosen rate is the lowest or the highest tried, so better ones may lie beyond."
    where = at_edge["model"] + " on " + at_edge["task"]
    sides = [f"the {edge}: {', '.join(names)}" for edge, names in where.groupby(at_edge["edge"])]
    return f"Chosen at the edge of the rates tried, so a better one may lie beyond; {'; '.join(sides)}."


def _lanes(count: int) -> str:
    return "1 lane" if count == 1 else f"{count} lanes"
