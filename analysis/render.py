"""The tables of an analysis as a person reads them; accuracies as percentages, "87.5 ± 12.4 (20/24)"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from statelab.analysis.layout import Section, fitting
from statelab.analysis.settings import setting_name, settings_of

MOST_DIFFERENCES = 24
"""A text table shows no more pairs of models than this; the CSV file has them all."""

_MODEL = 28
"""Columns of text kept for the models' names where lengths or tasks stand side by side."""


def accuracy_cell(mean: float, half_width: float, solved: int, n: int) -> str:
    """Mean and half-width (fractions) as percentages, and the solved count: "87.5 ± 12.4 (20/24)"."""
    spread = "" if np.isnan(half_width) else f" ± {100 * half_width:.1f}"
    return f"{percent(mean)}{spread} ({solved}/{n})"


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction as a percentage without its sign; "n/a" for NaN."""
    return "n/a" if np.isnan(fraction) else f"{100 * fraction:.{digits}f}"


def chosen_sections(chosen: pd.DataFrame) -> list[Section]:
    """Accuracy at the chosen settings of solved.choose_rates: a row per model, a column per task."""
    title = "Accuracy % (solved) at the chosen rates"
    cells = {
        (str(row["model"]), str(row["task"])): accuracy_cell(
            row["mean"], row["half_width"], row["solved"], row["n"]
        )
        for _, row in chosen.iterrows()
    }
    return crossed(title, cells, list(chosen["task"].unique()))


def crossed(title: str, cells: Mapping[tuple[str, str], str], columns: list[str]) -> list[Section]:
    """Cells by (model, column), in as many tables as the width of a text takes."""
    models = dict.fromkeys(model for model, _ in cells)
    lines = [("model", *columns)]
    lines += [(model, *(cells.get((model, column), "n/a") for column in columns)) for model in models]
    sections = []
    for some in fitting(lines, _MODEL):
        header, *rows = [(line[0], *(line[i] for i in some)) for line in lines]
        sections.append(Section(title=title, header=header, rows=tuple(rows)))
    return sections


def solved_sections(table: pd.DataFrame, chosen: pd.DataFrame, chance: Mapping[str, float]) -> list[Section]:
    """A table per task: every setting of every model, the chosen one marked with a star."""
    what = "rate" if settings_of(table) == ["learning_rate"] else "setting"
    header = ("", "model", what, "accuracy % (solved)", "solved, 95 %", "median %", "IQM %", "diverged")
    sections = []
    for task, rows in mark_chosen(table, chosen).groupby("task", sort=False):
        settings = settings_of(table)
        lines = [_solved_row(row, settings) for _, row in rows.iterrows()]
        guess = f", chance {100 * chance[str(task)]:.3g} %" if str(task) in chance else ""
        title = f"{task}: solved at accuracy ≥ {100 * rows['threshold'].max():.3g} %{guess}"
        sections.append(Section(title=title, header=header, rows=tuple(lines), left=3))
    return sections


def _solved_row(row: pd.Series, settings: list[str]) -> tuple[str, ...]:
    return (
        "*" if row["chosen"] else "",
        str(row["model"]),
        setting_name(row, settings),
        accuracy_cell(row["mean"], row["half_width"], row["solved"], row["n"]),
        f"{percent(row['wilson_low'], 0)}–{percent(row['wilson_high'], 0)} %",
        percent(row["median"]),
        percent(row["iqm"]),
        str(row["diverged"]),
    )


def mark_chosen(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The solved table with a column `chosen`, true for each (task, model)'s chosen setting."""
    keys = ["task", "model", *settings_of(table)]
    marked = table.merge(chosen[keys].assign(chosen=True), on=keys, how="left")
    return marked.assign(chosen=marked["chosen"].notna())


def length_sections(table: pd.DataFrame, what: str = "accuracy") -> list[Section]:
    """A table per task of a lengths.length_table of `what`: a row per model, a column per length."""
    sections = []
    for task, rows in table.groupby("task", sort=False):
        trained = " and ".join(str(length) for length in sorted(set(rows["train_length"])))
        title = f"{task}: {what} % (solved) by length, trained at {trained}"
        cells = {
            (str(row["model"]), str(row["length"])): f"{percent(row['mean'])} ({row['solved']}/{row['n']})"
            for _, row in rows.iterrows()
        }
        lengths = [str(length) for length in sorted(set(rows["length"]))]
        sections += crossed(title, cells, lengths)
    return sections


def difference_sections(table: pd.DataFrame) -> list[Section]:
    """One table of differences.paired_differences; none if there is no pair, or more than fit a page."""
    if not 0 < len(table) <= MOST_DIFFERENCES:
        return []
    header = ("task", "first", "second", "difference", "95 %", "seeds", "solved", "p", "p solved")
    lines = [_difference_row(row) for _, row in table.iterrows()]
    title = "Differences at the chosen rates, first − second, in points of accuracy, paired by seed"
    return [Section(title=title, header=header, rows=tuple(lines), left=3)]


def _difference_row(row: pd.Series) -> tuple[str, ...]:
    spread = "" if np.isnan(row["half_width"]) else f" ± {100 * row['half_width']:.1f}"
    return (
        str(row["task"]),
        str(row["first"]),
        str(row["second"]),
        f"{signed(row['difference'])}{spread}",
        f"{signed(row['bca_low'])} to {signed(row['bca_high'])}" if row["bca_low"] == row["bca_low"] else "",
        str(row["pairs"]),
        f"{row['solved_first']}/{row['n_first']} : {row['solved_second']}/{row['n_second']}",
        p_value(row["p_sign_flip_holm"]),
        p_value(row["p_mcnemar_holm"]),
    )


def signed(fraction: float) -> str:
    """A difference of fractions in points, "+18.4"; "n/a" for NaN."""
    return "n/a" if np.isnan(fraction) else f"{100 * fraction:+.1f}"


def p_value(p: float) -> str:
    """Two digits, "< 0.001" below that; empty for NaN."""
    if np.isnan(p):
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def as_csv(table: pd.DataFrame) -> str:
    """Any of these tables as CSV at full precision, missing values empty."""
    return table.to_csv(index=False, lineterminator="\n")
