"""The command `statelab`. Everything heavy is imported by the command that needs it: --help stays quick."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statelab.sweeps.cli_bench import DeviceOption
from statelab.sweeps.cli_lists import bench_app, models_app, tasks_app
from statelab.sweeps.cli_studies import (
    RunsOption,
    StorageOption,
    StudyArgument,
    collect,
    dashboard,
    report,
    status,
    study_folder,
)

if TYPE_CHECKING:
    from statelab.sweeps.spec import Spec

app = typer.Typer(
    name="statelab",
    help="A laboratory for small sequence models: whole sweeps trained as populations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(tasks_app, name="tasks")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")

WorkersOption = Annotated[
    int,
    typer.Option("--workers", min=0, help="Processes that train at once; 0: one a card, or as cores allow."),
]
LanesOption = Annotated[int, typer.Option("--max-lanes", min=1, help="Largest population trained at once.")]
SpecArgument = Annotated[Path, typer.Argument(help="The study's spec, a TOML file.")]


class Compile(StrEnum):
    """Whether steps are compiled; `auto` by their number."""

    auto = "auto"
    on = "on"
    off = "off"


CompileOption = Annotated[
    Compile,
    typer.Option(
        "--compile", envvar="STATELAB_COMPILE",
        help="Fuse a card's steps with torch.compile: a minute or so for each cell, then quicker steps.",
    ),
]  # fmt: skip


@app.command()
def demo(runs: RunsOption = Path("runs"), device: DeviceOption = "auto") -> None:
    """Train a small study to the end: which recurrences can keep a parity? About a minute or two on a laptop."""
    from statelab.sweeps.demo import demo_sentence, demo_spec_path
    from statelab.sweeps.launch import run_study

    found = run_study(_read(demo_spec_path()), runs, device=device).findings
    if found is not None:
        typer.echo(demo_sentence(found.lanes, found.lengths))


@app.command()
def run(
    spec: SpecArgument,
    runs: RunsOption = Path("runs"),
    device: DeviceOption = "auto",
    max_lanes: LanesOption = 64,
    workers: WorkersOption = 0,
    engine: Annotated[str, typer.Option(help="Where the workers are: local, slurm or ray.")] = "local",
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the engine as key=value: slurm_partition=gpu, address=…"),
    ] = None,
    storage: StorageOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try lanes again that failed as often as they may.")
    ] = False,
    compile_steps: CompileOption = Compile.auto,
    no_report: Annotated[bool, typer.Option("--no-report", help="Only train and record.")] = False,
) -> None:
    """Run a study, or go on with it: lanes that are finished are not run again."""
    study = _read(spec)
    os.environ["STATELAB_COMPILE"] = compile_steps.value  # by which workers are told
    from statelab.sweeps.engine import Engine
    from statelab.sweeps.launch import run_study, tell_what_is_open, train_study
    from statelab.sweeps.overview import options_of

    where = Engine(kind=engine, options=options_of(option or [], "--option"))
    how: dict[str, Any] = {"device": device, "max_lanes": max_lanes, "workers": workers, "storage": storage}
    how |= {"engine": where, "retry_failed": retry_failed}
    if no_report:
        tell_what_is_open(train_study(study, runs, **how))
    else:
        run_study(study, runs, **how)


@app.command()
def worker(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    device: DeviceOption = "auto",
    max_lanes: LanesOption = 64,
    storage: StorageOption = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End as soon as nothing waits, not when nothing is left.")
    ] = False,
    compile_steps: CompileOption = Compile.auto,
) -> None:
    """Train what waits in a study that `statelab run` has started, beside its other workers.

    On a machine that shares no folder with the others: the study's spec, and --storage.
    """
    from statelab.sweeps.ahead import wait_until_wanted

    wait_until_wanted()
    from statelab.sweeps.launch import work_on

    os.environ["STATELAB_COMPILE"] = compile_steps.value
    given = _read(study) if study.is_file() else study_folder(study, runs)
    work_on(given, runs, device, max_lanes, storage, wait=not no_wait)


@app.command()
def check(
    spec: SpecArgument,
    sizes: Annotated[
        bool, typer.Option(help="Tell parameters, state and memory too, some seconds after the rest.")
    ] = True,
    timed: Annotated[
        bool, typer.Option("--time", help="Tell hours too, by a few timed steps of each cell.")
    ] = False,
    device: DeviceOption = "auto",
    max_lanes: LanesOption = 64,
    sizes_alone: Annotated[bool, typer.Option("--sizes-alone", hidden=True)] = False,
) -> None:
    """Read a spec and say what it would run, or everything that is wrong with it."""
    study = _read(spec)
    if sizes_alone:
        from statelab.sweeps.launch import sizes_of

        for line in sizes_of(study, device, max_lanes, timed=timed):
            typer.echo(line)
        return
    from statelab.sweeps.overview import describe

    typer.echo(describe(study))
    if sizes or timed:
        _tell_sizes(spec, device, max_lanes, timed)


def _tell_sizes(spec: Path, device: str, max_lanes: int, timed: bool) -> None:
    """By a process of its own, so that what is wrong with a spec is told without waiting for torch."""
    words = ["check", str(spec), "--sizes-alone", "--device", device, "--max-lanes", str(max_lanes)]
    sys.stdout.flush()
    told = subprocess.run(
        [sys.executable, "-m", "statelab.sweeps.cli", *words, *(["--time"] if timed else [])], check=False
    )
    if told.returncode:
        raise typer.Exit(told.returncode)


for look in (status, collect, report, dashboard):
    app.command()(look)


@app.command()
def doctor(storage: StorageOption = None) -> None:
    """Say what this machine has: versions, GPU, threads, disk, extras, and whether a storage answers."""
    from statelab.sweeps.doctor import examine

    typer.echo(examine(storage))


def _read(path: Path) -> Spec:
    from statelab.sweeps.read import read_spec

    return read_spec(path)


def main() -> None:
    """Run the command line; mistakes end in a sentence and exit code 2, never in a traceback."""
    from statelab.sweeps.errors import exit_code_of

    # A user's own layers are found where the command is given, as `python -m` finds them.
    sys.path.insert(0, str(Path.cwd()))
    # Small operations gain little from a second thread, and threads that spin while they wait lose much of it
    # again on a machine that others use too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(standalone_mode=True)
    except Exception as error:
        code, text = exit_code_of(error)
        if text is None:
            raise
        typer.echo(text, err=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
