"""What a study shows so far, written into its folder: tables, differences and the two figures."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from statelab.analysis import notes, render
from statelab.analysis.differences import paired_differences
from statelab.analysis.layout import as_markdown, as_text
from statelab.analysis.lengths import chance_levels, length_table
from statelab.analysis.solved import choose_rates, solved_table
from statelab.sweeps.record import (
    collect,
    collect_lengths,
    collect_metrics,
    collect_ranges,
    study_lanes,
    write_atomically,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = (
    "table.txt",
    "table.csv",
    "table.md",
    "differences.csv",
    "lengths.csv",
    "ranges.csv",
    "metrics.csv",
    "solved.png",
    "lengths.png",
)

DOTS_PER_INCH = 150


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A study's records and what follows from them.

    `lanes`, `lengths`, `ranges` and `metrics` are of sweeps.record; `table`, `chosen`, `differences`, `by_length`
    and `chance` of solved.solved_table, solved.choose_rates, differences.paired_differences, lengths.length_table and
    lengths.chance_levels. `wanted` is how many lanes the study's spec asks for, where known.
    """

    lanes: pd.DataFrame
    lengths: pd.DataFrame
    table: pd.DataFrame
    chosen: pd.DataFrame
    differences: pd.DataFrame
    by_length: pd.DataFrame
    ranges: pd.DataFrame
    metrics: pd.DataFrame
    chance: Mapping[str, float]
    wanted: int | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The files written, by name; `text` is table.txt; `findings` is None where no lane has finished."""

    folder: Path
    files: Mapping[str, Path]
    text: str
    findings: Findings | None


def write_report(study_folder: str | os.PathLike[str]) -> Report:
    """Write STUDY/report/ with those of FILES that have something to show.

    Each file appears whole or not at all. What an earlier report left and this one has nothing for (no lane
    finished, no length tested) is removed. Raises FileNotFoundError if there is no such folder, and OSError
    where it cannot be written.
    """
    study = Path(study_folder)
    if not study.is_dir():
        raise FileNotFoundError(f"no study at {study}: give the folder that `statelab run` wrote")
    folder = study / "report"
    folder.mkdir(exist_ok=True)
    findings = find(study)
    texts = _texts(findings)
    for name, text in texts.items():
        write_atomically(folder / name, text)
    drawn = []
    for name, figure in _figures(findings):
        _save_atomically(folder / name, figure)
        drawn.append(name)
    files = {name: folder / name for name in FILES if name in texts or name in drawn}
    for name in set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    return Report(folder=folder, files=files, text=texts["table.txt"], findings=findings)


def find(study: Path) -> Findings | None:
    """Read a study's records and work out what they show; None where no lane has finished."""
    lanes, lengths, wanted = collect(study), collect_lengths(study), study_lanes(study)
    if lanes.empty:
        return None
    chosen = choose_rates(lanes)
    return Findings(
        lanes=lanes,
        lengths=lengths,
        table=solved_table(lanes),
        chosen=chosen,
        differences=paired_differences(lanes, chosen),
        by_length=length_table(lengths, lanes, chosen),
        ranges=collect_ranges(study),
        metrics=collect_metrics(study),
        chance=chance_levels(lanes),
        wanted=None if wanted is None else len(wanted),
    )


def _texts(findings: Findings | None) -> dict[str, str]:
    if findings is None:
        return {"table.txt": as_text([], [notes.EMPTY]), "table.md": as_markdown([], [notes.EMPTY])}
    sections = [
        *(render.chosen_sections(findings.chosen) if len(findings.table) > 1 else []),
        *render.solved_sections(findings.table, findings.chosen, findings.chance),
        *render.difference_sections(findings.differences),
        *render.length_sections(findings.by_length),
    ]
    sentences = [
        *notes.study_notes(findings.lanes, findings.table, findings.chosen, findings.wanted),
        *notes.difference_notes(findings.differences),
        *notes.length_notes(findings.by_length),
    ]
    texts = {
        "table.txt": as_text(sections, sentences),
        "table.md": as_markdown(sections, sentences),
        "table.csv": render.as_csv(render.mark_chosen(findings.table, findings.chosen)),
        "differences.csv": render.as_csv(findings.differences),
    }
    others = {
        "lengths.csv": findings.by_length,
        "ranges.csv": findings.ranges,
        "metrics.csv": findings.metrics,
    }
    return texts | {name: render.as_csv(table) for name, table in others.items() if not table.empty}


def _figures(findings: Findings | None) -> Iterator[tuple[str, Figure]]:
    if findings is None:
        return
    # seaborn takes seconds to import, and an empty study needs none of it.
    from statelab.analysis.figures import length_figure, solved_figure

    yield "solved.png", solved_figure(findings.lanes, chance=findings.chance)
    if not findings.by_length.empty:
        yield "lengths.png", length_figure(findings.lengths, findings.lanes, chance=findings.chance)


def _save_atomically(path: Path, figure: Figure) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        figure.savefig(partial, format="png", dpi=DOTS_PER_INCH)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
