"""Published figures that a study carries, beside its own: a small file `published.toml` in the study's folder.

    citation = "A. Author, A Paper, 2026, Table 1"
    url = "https://example.org"

    [[figures]]
    task = "parity"              # as the study calls them
    model = "GRU"
    percent = 87.5               # mean accuracy in percent, as papers print it
    half_width = 12.4            # of its 95 % interval, if given
    solved = 20
    n = 24
    length = 256                 # at this test length; left out: at the training length
    measure = "scaled_accuracy"  # left out: accuracy
    citation = "…"               # of this figure, where it is another's

Each figure needs task and model, and `percent` or `solved` and `n`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from statelab.analysis.settings import at_chosen
from statelab.analysis.solved import mark_solved
from statelab.analysis.statistics import MeanInterval, mean_interval, wilson_interval

FILE = "published.toml"
MEASURES = ("accuracy", "scaled_accuracy")
PUBLISHED_COLUMNS = (
    "task",
    "model",
    "measure",
    "length",
    "mean",
    "half_width",
    "solved",
    "n",
    "citation",
    "url",
)
COMPARED_COLUMNS = (
    *PUBLISHED_COLUMNS,
    "our_mean",
    "our_half_width",
    "our_solved",
    "our_n",
    "means_overlap",
    "shares_overlap",
)
_KEYS = {"task", "model", "percent", "half_width", "solved", "n", "length", "measure", "citation", "url"}


def read_published(path: Path) -> pd.DataFrame:
    """The published figures of a file, one row each with PUBLISHED_COLUMNS; means are fractions.

    Raises ValueError with a sentence where the file is no such file; an absent one has no rows.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return pd.DataFrame(columns=pd.Index(PUBLISHED_COLUMNS))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    figures = data.get("figures")
    if not isinstance(figures, list) or not figures:
        raise ValueError(
            f"{path}: needs a list [[figures]], each with task, model and percent or solved and n"
        )
    rows = [_row(figure, data, f"{path}: figures[{i}]") for i, figure in enumerate(figures)]
    return pd.DataFrame(rows, columns=pd.Index(PUBLISHED_COLUMNS))


def _row(figure: dict[str, Any], data: dict[str, Any], where: str) -> dict[str, Any]:
    if unknown := set(figure) - _KEYS:
        raise ValueError(f"{where}: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(_KEYS))}")
    if not {"task", "model"} <= set(figure):
        raise ValueError(f"{where}: needs task and model, as the study calls them")
    if "percent" not in figure and not {"solved", "n"} <= set(figure):
        raise ValueError(f"{where}: needs percent, or solved and n")
    measure = figure.get("measure", "accuracy")
    if measure not in MEASURES:
        raise ValueError(f"{where}: measure is one of {', '.join(MEASURES)}, got {measure!r}")
    numbers = {
        name: _number(figure, name, where) for name in ("percent", "half_width", "solved", "n", "length")
    }
    solved, n = numbers["solved"], numbers["n"]
    if solved > n or solved < 0:
        raise ValueError(f"{where}: solved must lie in [0, n] = [0, {n:g}], got {solved:g}")
    return {
        "task": figure["task"],
        "model": figure["model"],
        "measure": measure,
        "length": numbers["length"],
        "mean": numbers["percent"] / 100,
        "half_width": numbers["half_width"] / 100,
        "solved": solved,
        "n": n,
        "citation": figure.get("citation", data.get("citation", "")),
        "url": figure.get("url", data.get("url", "")),
    }


def _number(figure: dict[str, Any], name: str, where: str) -> float:
    value = figure.get(name, np.nan)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: {name} must be a number, got {value!r}")
    return float(value)


def compare_published(
    published: pd.DataFrame, lanes: pd.DataFrame, lengths: pd.DataFrame, chosen: pd.DataFrame
) -> pd.DataFrame:
    """The published figures with ours beside them, columns COMPARED_COLUMNS.

    Ours are of the lanes at the chosen settings, over `lengths` (sweeps.record.collect_lengths) where a figure
    names a length. `means_overlap` tells whether the 95 % intervals of the means meet (a side without interval is a
    point), `shares_overlap` the same of the Wilson intervals of the solved shares; None where a side is missing.
    """
    best = at_chosen(mark_solved(lanes), chosen)
    tested = lengths.merge(best[["id", "status", "threshold"]], on="id")
    rows = []
    for _, figure in published.iterrows():
        of_cell = (
            frame[(frame["task"] == figure["task"]) & (frame["model"] == figure["model"])]
            for frame in (best, tested)
        )
        ours, longer = of_cell
        at = ours if np.isnan(figure["length"]) else mark_solved(longer[longer["length"] == figure["length"]])
        mean = mean_interval(at[figure["measure"]].to_numpy(np.float64))
        n = len(ours) if len(at) else 0
        solved = int(at["solved"].sum()) if n else np.nan
        theirs = MeanInterval(n=0, mean=figure["mean"], half_width=figure["half_width"])
        rows.append(
            figure.to_dict()
            | {
                "our_mean": mean.mean,
                "our_half_width": mean.half_width,
                "our_solved": solved,
                "our_n": n,
                "means_overlap": _means_overlap(mean, theirs),
                "shares_overlap": _shares_overlap(solved, n, figure["solved"], figure["n"]),
            }
        )
    return pd.DataFrame(rows, columns=pd.Index(COMPARED_COLUMNS))


def _means_overlap(ours: MeanInterval, theirs: MeanInterval) -> bool | None:
    if np.isnan(ours.mean) or np.isnan(theirs.mean):
        return None
    reach = float(np.nansum([ours.half_width, theirs.half_width]))
    return bool(abs(ours.mean - theirs.mean) <= reach + 1e-12)


def _shares_overlap(solved: float, n: int, their_solved: float, their_n: float) -> bool | None:
    if not n or np.isnan(their_solved) or np.isnan(their_n):
        return None
    ours, theirs = wilson_interval(int(solved), n), wilson_interval(int(their_solved), int(their_n))
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]
