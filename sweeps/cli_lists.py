"""What there is, and how fast it is: the commands `statelab tasks`, `models` and `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statelab.sweeps.cli_bench import DeviceOption, bench_decode, bench_throughput

SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="An option as key=value; may be given again.")
]
tasks_app = typer.Typer(
    help="The tasks: what there is, and rows a person can read.", invoke_without_command=True
)
models_app = typer.Typer(
    help="The mixers: what there is, with options and sources.", invoke_without_command=True
)
bench_app = typer.Typer(help="Benchmarks, each beside what it measures.", no_args_is_help=True)
bench_app.command("throughput")(bench_throughput)
bench_app.command("decode")(bench_decode)


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
    case: Annotated[
        list[str] | None, typer.Option(help="baseline, orthogonal or prototype; all if not given.")
    ] = None,
    arithmetic: Annotated[str, typer.Option(help="float32, tf32 or bf16.")] = "float32",
    lanes: Annotated[int | None, typer.Option(min=1, help="Lanes of the population.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps timed.")] = None,
    batch: Annotated[int | None, typer.Option(min=1)] = None,
    length: Annotated[int | None, typer.Option(min=1)] = None,
    profile: Annotated[
        str, typer.Option(help="captured or compiled: show that step's kernels instead.")
    ] = "",
    device: DeviceOption = "auto",
) -> None:
    """Steps of a population, eager, captured and compiled, against single runs one after another."""
    from statelab.models.benchmark import CASES, tables
    from statelab.sweeps.device import pick_device
    from statelab.sweeps.errors import UserError

    sizes = {"lanes": lanes, "steps": steps, "batch": batch, "length": length}
    try:
        for text in tables(pick_device(device), case or list(CASES), arithmetic, profile, sizes=sizes):
            typer.echo(text)
    except ValueError as error:
        raise UserError(str(error)) from None


@bench_app.command("kernels")
def bench_kernels(
    op: Annotated[list[str] | None, typer.Option(help="An op to time; all if not given.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Of the kernels' products: bf16, tf32, bf16x3, bf16x6.")
    ] = None,
    kernel: Annotated[
        list[str] | None, typer.Option(help="An op's backend: triton, or recurrent where it has that too.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the inputs: bf16 or float32.")] = "float32",
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Changes an op's own sizes, as in B64,T256,H4,d32; may be given again."),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Beside other libraries' kernels, those that are installed.")
    ] = False,
    lanes: Annotated[
        int | None, typer.Option(min=2, help="Time so many lanes at once against one, instead.")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Kernels against plain torch and other libraries: times, memory, errors against float64."""
    from statelab.kernels.benchmark import lines
    from statelab.kernels.works import WORKS
    from statelab.sweeps.device import pick_device
    from statelab.sweeps.errors import UserError

    try:
        for line in lines(
            pick_device(device),
            op or list(WORKS),
            shapes=shape or (),
            dtype=dtype,
            precisions=precision or (),
            kernels=kernel or (),
            peers=peers,
            lanes=lanes,
        ):
            typer.echo(line)
    except ValueError as error:
        raise UserError(str(error)) from None
