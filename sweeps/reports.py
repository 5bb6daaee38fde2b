"""From a study's name to its report. Light to import, since a small study's report takes a few seconds in all."""

from __future__ import annotations

from pathlib import Path

from statelab.sweeps.errors import UserError


def folder_of(study: Path, runs: Path) -> Path:
    """The folder of a study given by itself, by its name under `runs`, or by its spec. Raises UserError."""
    if study.is_dir():
        return study
    if study.is_file():
        from statelab.sweeps.read import read_spec

        return runs / read_spec(study).name
    if (runs / study).is_dir():
        return runs / study
    from statelab.models.config import nearest

    known = sorted(path.parent.name for path in runs.glob("*/study.json"))
    raise UserError(
        f"no study {str(study)!r}: give its folder, its name under {runs}, or its spec"
        + (
            f"; known: {', '.join(known)}.{nearest(study.name, known)}"
            if known
            else "; none has been run yet"
        )
    )


def report_on(folders: list[Path], formats: list[str] | None) -> str:
    """Write the report of a study, or of several together; its text and where its page is. Raises UserError."""
    from statelab.analysis.uncollected import uncollected

    with uncollected():
        from statelab.analysis.drawing import FORMATS
        from statelab.analysis.report import write_comparison, write_report

        wanted = tuple(dict.fromkeys(formats or FORMATS))
        try:
            one = len(folders) == 1
            report = write_report(folders[0], wanted) if one else write_comparison(folders, wanted)
        except ValueError as error:
            raise UserError(str(error)) from None
    return f"{report.text}\npage: {report.files['report.html']}"
