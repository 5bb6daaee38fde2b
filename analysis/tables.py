"""More tables as a person reads them: pairs as papers print them, times, thresholds, capacity, published figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from statelab.analysis.layout import Section
from statelab.analysis.render import accuracy_cell, crossed, p_value, percent, signed
from statelab.analysis.settings import setting_name, settings_of

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds that a table shows; the CSV file has every hundredth."""
MOST_PAIRS = 12
_MOST_ROWS = 60


def pair_table(chosen: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """The chosen rows of two models and their paired difference side by side, one row per (task, pair)."""
    sides = [
        chosen[["task", "model", "mean", "half_width", "solved", "n"]].rename(
            columns={"model": side}
            | {name: f"{name}_{side}" for name in ("mean", "half_width", "solved", "n")}
        )
        for side in ("first", "second")
    ]
    rows = differences[["task", "first", "second", "difference", "half_width", "pairs"]]
    for side, frame in zip(("first", "second"), sides, strict=True):
        rows = rows.merge(frame, on=["task", side], how="left")
    return rows


def pair_sections(table: pd.DataFrame) -> list[Section]:
    """Of a pair_table: mean ± interval (k/n) of each, and the difference paired by seed, as papers print it.

    Two models head the columns by their names; of several pairs each row names its own. None for more than
    MOST_PAIRS rows.
    """
    if not 0 < len(table) <= MOST_PAIRS:
        return []
    title = "Accuracy % (solved), and the difference paired by seed"
    lines = []
    for _, row in table.iterrows():
        sides = [
            accuracy_cell(*(row[f"{name}_{side}"] for name in ("mean", "half_width", "solved", "n")))
            for side in ("first", "second")
        ]
        spread = "" if np.isnan(row["half_width"]) else f" ± {100 * row['half_width']:.1f}"
        lines.append((row["task"], row["first"], row["second"], *sides, signed(row["difference"]) + spread))
    pairs = {line[1:3] for line in lines}
    if len(pairs) == 1:
        header = ("task", *pairs.pop(), "difference")
        short = tuple((line[0], *line[3:]) for line in lines)
        return [Section(title=title, header=header, rows=short)]
    header = ("task", "first", "second", "accuracy of first", "of second", "difference")
    return [Section(title=title, header=header, rows=tuple(lines), left=3)]


def rate_sections(table: pd.DataFrame) -> list[Section]:
    """Solved lanes of every setting of a solved_table: a table per task, models down, settings across."""
    sections = []
    settings = settings_of(table)
    for task, rows in table.groupby("task", sort=False):
        names = [setting_name(row, settings) for _, row in rows.iterrows()]
        cells = {
            (str(row["model"]), name): f"{row['solved']}/{row['n']}"
            for name, (_, row) in zip(names, rows.iterrows(), strict=True)
        }
        sections += crossed(f"{task}: solved lanes by rate", cells, list(dict.fromkeys(names)))
    return sections


def curve_sections(table: pd.DataFrame) -> list[Section]:
    """Where training ended, of a summaries.curve_table: median and middle half of loss and accuracy."""
    last = table.sort_values("step", kind="stable").groupby(["task", "model", "what"], sort=False).tail(1)
    shown = last[last["what"] != "train_loss"]
    if not 0 < len(shown) <= _MOST_ROWS:
        return []
    lines = []
    for (task, model), rows in shown.groupby(["task", "model"], sort=False):
        cells = {
            row["what"]: f"{row['median']:.3g} ({row['low_quarter']:.3g} to {row['high_quarter']:.3g})"
            for _, row in rows.iterrows()
        }
        step = f"{rows['step'].max():.0f}"
        lines.append((str(task), str(model), step, cells.get("loss", "n/a"), cells.get("accuracy", "n/a")))
    header = ("task", "model", "last step", "loss", "accuracy")
    title = "At the last evaluation: median (middle half)"
    return [Section(title=title, header=header, rows=tuple(lines), left=2)]


def time_sections(by_time: pd.DataFrame, pairs: pd.DataFrame) -> list[Section]:
    """Steps to the threshold: escaped / lanes, the median, the restricted mean; log-rank p and hazard ratios."""
    lines = [
        (
            row["task"],
            row["model"],
            f"{row['escaped']}/{row['n']}",
            _steps(row["median"], f"> {row['horizon']:.0f}"),
            _steps(row["restricted_mean"])
            + ("" if np.isnan(row["half_width"]) else f" ± {row['half_width']:.0f}"),
        )
        for _, row in by_time.iterrows()
    ]
    header = ("task", "model", "escaped", "median step", "mean up to the end")
    sections = [
        Section(title="Time to solve at the chosen rates, in steps", header=header, rows=tuple(lines), left=2)
    ]
    if 0 < len(pairs) <= _MOST_ROWS:
        tests = [
            (
                row["task"],
                row["first"],
                row["second"],
                p_value(row["log_rank_holm"]),
                _ratio(row["hazard_ratio"]) + ("" if row["same_setting"] else " †"),
                "" if np.isnan(row["low"]) else f"{_ratio(row['low'])} to {_ratio(row['high'])}",
            )
            for _, row in pairs.iterrows()
        ]
        names = ("task", "first", "second", "log-rank p", "hazard ratio", "95 %")
        title = "Which solves sooner: hazard ratio first / second"
        sections.append(Section(title=title, header=names, rows=tuple(tests), left=3))
    return sections


def threshold_sections(table: pd.DataFrame) -> list[Section]:
    """Solved counts of solved.threshold_table at LEVELS: a table per task, models down, thresholds across."""
    sections = []
    shown = table[np.isclose(table["threshold"].to_numpy()[:, None], LEVELS).any(axis=1)]
    for task, rows in shown.groupby("task", sort=False):
        cells = {
            (str(row["model"]), f"{100 * row['threshold']:.0f} %"): f"{row['solved']}/{row['n']}"
            for _, row in rows.iterrows()
        }
        sections += crossed(
            f"{task}: solved lanes by threshold", cells, [f"{100 * level:.0f} %" for level in LEVELS]
        )
    return sections


def reach_sections(reach: pd.DataFrame) -> list[Section]:
    """The longest tested length up to which half the lanes of each model are solved."""
    lines = []
    for _, row in reach.iterrows():
        far = "not at the shortest" if np.isnan(row["reach"]) else f"{row['reach']:.0f}"
        if row["reach"] == row["tested"]:
            far += " (the longest tested)"
        trained = "" if np.isnan(row["train_length"]) else f"{row['train_length']:.0f}"
        lines.append((str(row["task"]), str(row["model"]), trained, far))
    header = ("task", "model", "trained at", "half the seeds hold up to")
    title = "The longest length at which half of the seeds are still solved"
    return [Section(title=title, header=header, rows=tuple(lines), left=2)] if lines else []


def capacity_sections(table: pd.DataFrame) -> list[Section]:
    """State, parameters and seconds of each model; a star where none is both cheaper and better."""
    lines = [
        (
            row["task"],
            row["model"],
            ("grows" if np.isnan(row["state_size"]) else f"{row['state_size']:,.0f}")
            + _star(row["best_for_state_size"]),
            "" if np.isnan(row["parameters"]) else f"{row['parameters']:,.0f}",
            ("" if np.isnan(row["seconds"]) else f"{row['seconds']:.3g}") + _star(row["best_for_seconds"]),
            f"{percent(row['median'])} ({row['solved']}/{row['n']})",
        )
        for _, row in table.iterrows()
    ]
    header = ("task", "model", "floats of state", "parameters", "seconds a lane", "median % (solved)")
    title = "What accuracy costs at the chosen rates (*: no model is both cheaper and better)"
    return [Section(title=title, header=header, rows=tuple(lines), left=2)]


def summary_sections(table: pd.DataFrame, title: str) -> list[Section]:
    """A table of summaries.metric_table or range_table, if short: its keys, mean ± interval, median."""
    if not 0 < len(table) <= _MOST_ROWS:
        return []
    keys = list(table.columns[: list(table.columns).index("measured")])
    lines = []
    for _, row in table.iterrows():
        spread = "" if np.isnan(row["half_width"]) else f" ± {100 * row['half_width']:.1f}"
        lines.append(
            (*(str(row[key]) for key in keys), percent(row["mean"]) + spread, percent(row["median"]))
        )
    header = (*keys, "mean %", "median %")
    return [Section(title=title, header=header, rows=tuple(lines), left=2)]


def published_sections(compared: pd.DataFrame) -> list[Section]:
    """Ours / published, models down and tasks across, and a line per figure with its source."""
    if compared.empty:
        return []
    cells, lines = {}, []
    for _, row in compared.iterrows():
        at = "" if np.isnan(row["length"]) else f" at {row['length']:.0f}"
        ours = _side(row["our_mean"], row["our_half_width"], row["our_solved"], row["our_n"])
        theirs = _side(row["mean"], row["half_width"], row["solved"], row["n"])
        cells[str(row["model"]), f"{row['task']}{at}"] = (
            f"{percent(row['our_mean'])} / {percent(row['mean'])}"
        )
        meets = [_meets(row[name]) for name in ("means_overlap", "shares_overlap")]
        lines.append((row["task"] + at, row["model"], ours, theirs, *meets))
    measures = " or ".join(name.replace("_", " ") for name in dict.fromkeys(compared["measure"]))
    across = crossed(f"Ours / published, {measures} %", cells, list(dict.fromkeys(key[1] for key in cells)))
    header = ("task", "model", "ours", "published", "means meet", "shares meet")
    return [*across, Section(title="Do the 95 % intervals meet?", header=header, rows=tuple(lines), left=2)]


def _side(mean: float, half_width: float, solved: float, n: float) -> str:
    spread = "" if np.isnan(half_width) else f" ± {100 * half_width:.1f}"
    count = "" if np.isnan(solved) or np.isnan(n) else f" ({solved:.0f}/{n:.0f})"
    return f"{percent(mean)}{spread}{count}"


def _meets(overlap: bool | None) -> str:
    return "" if overlap is None else "yes" if overlap else "no"


def _steps(steps: float, missing: str = "") -> str:
    return missing if np.isnan(steps) else f"{steps:.0f}"


def _ratio(ratio: float) -> str:
    return "n/a" if np.isnan(ratio) else "∞" if np.isinf(ratio) else f"{ratio:.3g}"


def _star(marked: bool) -> str:
    return " *" if marked else ""
