"""Commands that look at studies that have been run: how far they are, their tables, their report, their ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsOption = Annotated[Path, typer.Option("--runs", help="Folder under which each study has its own.")]
StudyArgument = Annotated[Path, typer.Argument(help="A study's folder, its name, or its spec.")]
StorageOption = Annotated[
    str | None,
    typer.Option(help="postgresql://user@host/database for the ledger; else a journal file in the folder."),
]


def status(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    storage: StorageOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again until nothing is left.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks with --watch.")] = 5.0,
) -> None:
    """How far a study is: queued, running, solved, unsolved, diverged and failed lanes of each cell."""
    from statelab.sweeps.status import status_of, watch_status

    folder = study_folder(study, runs)
    if watch:
        watch_status(folder, storage, every, typer.echo)
    else:
        typer.echo(status_of(folder, storage).text())


def collect(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    to: Annotated[Path | None, typer.Option(help="Folder for the tables; else the study's `tables`.")] = None,
    format_: Annotated[str, typer.Option("--format", help="csv or parquet.")] = "csv",
) -> None:
    """Write a study's records as tidy tables: lanes, lengths, ranges, metrics, curves."""
    from statelab.sweeps.collect import write_tables

    folder = study_folder(study, runs)
    typer.echo("\n".join(write_tables(folder, to or folder / "tables", format_)))


def report(
    studies: Annotated[
        list[Path], typer.Argument(help="A study's folder, its name, or its spec; several are compared.")
    ],
    runs: RunsOption = Path("runs"),
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Figures as png, svg or pdf; may be given again. Without it: all."),
    ] = None,
) -> None:
    """The study's page, tables and figures, from its records; or those of several studies beside each other."""
    from statelab.sweeps.reports import report_on

    typer.echo(report_on([study_folder(study, runs) for study in studies], formats))


def dashboard(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to listen on: this machine's own alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
    storage: StorageOption = None,
) -> None:
    """Show a study's ledger in a browser, by optuna-dashboard."""
    from statelab.sweeps.dashboard import serve

    serve(study_folder(study, runs), host, port, storage)


def study_folder(study: Path, runs: Path) -> Path:
    """The folder of the study that a command was given. Raises UserError."""
    from statelab.sweeps.reports import folder_of

    return folder_of(study, runs)
