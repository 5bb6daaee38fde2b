"""What a study shows so far, written into its folder: a page, and each table and figure as files of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from statelab.analysis import notes, render
from statelab.analysis.contents import NAMES, pieces_of
from statelab.analysis.document import document
from statelab.analysis.drawing import FORMATS, Picture
from statelab.analysis.findings import Findings, compare, find
from statelab.analysis.layout import as_latex, as_markdown, as_text
from statelab.analysis.pieces import Piece
from statelab.analysis.studio import studio
from statelab.analysis.uncollected import uncollected
from statelab.sweeps.record import write_atomically

WORDS = ("csv", "md", "tex")
"""How a piece's table is written."""
FILES = (
    "report.html",
    "table.txt",
    "table.csv",
    "table.md",
    "table.tex",
    *(f"{name}.{kind}" for name in NAMES for kind in (*WORDS, *FORMATS)),
)
"""Every file that a report may write."""
_WRITERS = 8


@dataclass(frozen=True, kw_only=True)
class Report:
    """The files written, by name; `text` is table.txt; `findings` is None where no lane has finished."""

    folder: Path
    files: Mapping[str, Path]
    text: str
    findings: Findings | None


@uncollected()
def write_report(study_folder: str | os.PathLike[str], formats: Collection[str] = FORMATS) -> Report:
    """Write STUDY/report/: report.html, table.* and for each piece its table and its figure in `formats`.

    Each file appears whole or not at all. What an earlier report left and this one has nothing for (no lane
    finished, no length tested) is removed. Raises FileNotFoundError if there is no such folder, ValueError for
    a format that is not of drawing.FORMATS, and OSError where it cannot be written.
    """
    study = _checked(study_folder, formats)
    with studio(formats) as draw:
        return _write(study / "report", find(study), formats, [study], draw)


@uncollected()
def write_comparison(studies: Sequence[str | os.PathLike[str]], formats: Collection[str] = FORMATS) -> Report:
    """The same of several studies together, each model named with its study, in FIRST/report-with-OTHERS/.

    Differences are between models of one name in two studies, or else between all of different studies. Raises as
    write_report does, and ValueError for fewer than two studies.
    """
    if len(studies) < 2:
        raise ValueError(f"a comparison needs two studies or more, got {len(studies)}")
    folders = [_checked(study, formats) for study in studies]
    others = "-".join(folder.resolve().name for folder in folders[1:])
    with studio(formats) as draw:
        return _write(folders[0] / f"report-with-{others}", compare(folders), formats, folders, draw)


def _checked(study_folder: str | os.PathLike[str], formats: Collection[str]) -> Path:
    study = Path(study_folder)
    if not study.is_dir():
        raise FileNotFoundError(f"no study at {study}: give the folder that `statelab run` wrote")
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise ValueError(f"unknown format {', '.join(unknown)}; known: {', '.join(FORMATS)}")
    return study


def _write(
    folder: Path,
    found: Findings | None,
    formats: Collection[str],
    studies: Sequence[Path],
    draw: Callable[[Sequence[Piece]], dict[str, Picture]],
) -> Report:
    folder.mkdir(exist_ok=True)
    pieces = pieces_of(found) if found is not None else []
    texts = _texts(found, pieces)
    _write_all(folder, texts)
    pictures = draw(pieces)
    rest: dict[str, str | bytes] = {"report.html": document(found, pieces, pictures, studies)}
    rest |= {f"{name}.{kind}": p.files[kind] for name, p in pictures.items() for kind in formats}
    _write_all(folder, rest)
    files = {name: folder / name for name in FILES if name in texts or name in rest}
    for name in set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    return Report(folder=folder, files=files, text=texts["table.txt"], findings=found)


def _write_all(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Each file is on the disk before it takes its name; several wait for the disk together."""
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(write_atomically, map(folder.joinpath, contents), contents.values()))


def _texts(found: Findings | None, pieces: Sequence[Piece]) -> dict[str, str]:
    if found is None:
        nothing = [notes.EMPTY]
        return {"table.txt": as_text([], nothing), "table.md": as_markdown([], nothing)}
    by_name = {piece.name: piece for piece in pieces}
    names = ("success", "solved", "published", "differences", "lengths", "time")
    shown = [by_name[name] for name in names if name in by_name]
    # Who solves sooner, pair by pair, is in time.md: a terminal shows how soon each does.
    sections = [
        s for piece in shown for s in (piece.sections[:1] if piece.name == "time" else piece.sections)
    ]
    sentences = notes.study_notes(found.lanes, found.table, found.chosen, found.wanted, found.rule)
    sentences += [note for piece in shown for note in piece.notes]
    if found.by_length.empty:
        sentences += notes.length_notes(found.by_length)
    texts = {
        "table.txt": as_text(sections, sentences),
        "table.md": as_markdown(sections, sentences),
        "table.tex": as_latex(sections, sentences),
        "table.csv": render.as_csv(render.mark_chosen(found.table, found.chosen)),
    }
    for piece in pieces:
        if piece.table is not None:
            texts[f"{piece.name}.csv"] = render.as_csv(piece.table)
        if piece.sections:
            texts[f"{piece.name}.md"] = as_markdown(piece.sections, piece.notes)
            texts[f"{piece.name}.tex"] = as_latex(piece.sections, piece.notes)
    return texts
