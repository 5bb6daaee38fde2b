"""The command `statelab`. Everything heavy is imported by the command that needs it: --help stays quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
tasks_app = typer.Typer(
    help="The tasks: what there is, and rows a person can read.", invoke_without_command=True
)
models_app = typer.Typer(
    help="The mixers: what there is, with options and sources.", invoke_without_command=True
)
bench_app = typer.Typer(help="Benchmarks, each beside what it measures.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")

WorkersOption = Annotated[
    int,
    typer.Option("--workers", min=0, help="Processes that train at once; 0: one a card, or as cores allow."),
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder under which each study has its own.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
LanesOption = Annotated[int, typer.Option("--max-lanes", min=1, help="Largest population trained at once.")]
StudyArgument = Annotated[Path, typer.Argument(help="A study's folder, its name, or its spec.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="An option as key=value; may be given again.")
]


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
    spec: Annotated[Path, typer.Argument(help="The study's spec, a TOML file.")],
    runs: RunsOption = Path("runs"),
    device: DeviceOption = "auto",
    max_lanes: LanesOption = 64,
    workers: WorkersOption = 0,
) -> None:
    """Run a study, or go on with it: lanes that are finished are not run again."""
    study = _read(spec)
    from statelab.sweeps.launch import run_study

    run_study(study, runs, device=device, max_lanes=max_lanes, workers=workers)


@app.command()
def worker(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    device: DeviceOption = "auto",
    max_lanes: LanesOption = 64,
) -> None:
    """Train what waits in a study that `statelab run` has started, beside its other workers."""
    from statelab.sweeps.launch import work_on

    work_on(_folder(study, runs), device, max_lanes)


@app.command()
def check(spec: Annotated[Path, typer.Argument(help="The study's spec, a TOML file.")]) -> None:
    """Read a spec and say what it would run, or everything that is wrong with it."""
    study = _read(spec)
    from statelab.sweeps.overview import describe

    typer.echo(describe(study))


@app.command()
def status(study: StudyArgument, runs: RunsOption = Path("runs")) -> None:
    """How far a study is: finished, solved, diverged, waiting and running lanes of each cell."""
    from statelab.sweeps.overview import status_of

    typer.echo(status_of(_folder(study, runs)))


@app.command()
def report(study: StudyArgument, runs: RunsOption = Path("runs")) -> None:
    """The study's tables and figures, from its records."""
    from statelab.analysis.report import write_report

    typer.echo(write_report(_folder(study, runs)).text)


@tasks_app.callback()
def list_tasks(context: typer.Context) -> None:
    """List the tasks, or show one: statelab tasks show parity."""
    if context.invoked_subcommand is None:
        from statelab.sweeps.overview import list_of_tasks

        typer.echo(list_of_tasks())


@tasks_app.command("show")
def show_task(
    name: Annotated[str, typer.Argument(help="A task of `statelab tasks`.")],
    length: Annotated[int | None, typer.Option(help="Length of the rows.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many rows.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the rows.")] = 0,
    set_: SetOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the rows into this file (PNG, SVG, PDF) too.")
    ] = None,
) -> None:
    """Print rows of a task with their targets, and what is scored."""
    from statelab.sweeps.overview import show_rows, task_of

    task, length = task_of(name, set_ or [], length)
    typer.echo(show_rows(name, task, length, rows, seed))
    if plot is not None:
        from statelab.sweeps.overview import plot_rows

        plot_rows(plot, name, task, length, rows, seed)
        typer.echo(f"figure: {plot}")


@models_app.callback()
def list_models(context: typer.Context) -> None:
    """List the mixers, or show one: statelab models show mlstm."""
    if context.invoked_subcommand is None:
        from statelab.sweeps.overview import list_of_mixers

        typer.echo(list_of_mixers())


@models_app.command("show")
def show_model(name: Annotated[str, typer.Argument(help="A mixer of `statelab models`.")]) -> None:
    """Print a mixer's options with their defaults and what each does."""
    from statelab.sweeps.overview import show_mixer

    typer.echo(show_mixer(name))


@app.command()
def doctor() -> None:
    """Say what this machine has: versions, GPU, threads, disk."""
    from statelab.sweeps.doctor import examine

    typer.echo(examine())


@bench_app.command("tasks")
def bench_tasks(
    device: Annotated[
        str, typer.Option(help="cpu: rows a second on one core; cuda: a step of 24 lanes.")
    ] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Rows drawn at once on the CPU.")] = 1024,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time spent on each task.")] = 0.5,
) -> None:
    """How fast the tasks draw their rows, beside the published speeds of other generators."""
    from statelab.tasks.benchmark import table

    typer.echo(table(batch=batch, seconds=seconds, device=device))


@bench_app.command("population")
def bench_population(
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the population.")] = 24,
    steps: Annotated[int, typer.Option(min=1, help="Steps timed.")] = 5,
    batch: Annotated[int, typer.Option(min=1)] = 16,
    length: Annotated[int, typer.Option(min=1)] = 128,
    read: Annotated[str, typer.Option(help="plain or orthogonal.")] = "plain",
    device: DeviceOption = "auto",
) -> None:
    """A population of the 77,716-parameter mLSTM against the same runs one after another."""
    from statelab.models.benchmark import population_table
    from statelab.sweeps.run import pick_device

    typer.echo(population_table(pick_device(device), lanes, steps, batch, length, read))


def _read(path: Path) -> Spec:
    from statelab.sweeps.read import read_spec

    return read_spec(path)


def _folder(study: Path, runs: Path) -> Path:
    from statelab.sweeps.overview import folder_of

    return folder_of(study, runs)


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
