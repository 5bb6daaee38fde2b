"""The commands `statelab bench throughput` and `statelab bench decode`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

ToOption = Annotated[Path, typer.Option("--to", help="Folder for the rows (CSV) and the figures.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
MixersOption = Annotated[
    str | None,
    typer.Option(help='Names with commas between, also your own "package.module:Class"; else all.'),
]
SecondsOption = Annotated[
    float | None,
    typer.Option(help="Time that goes into one measurement, about; what takes longer is left out."),
]


def bench_throughput(
    mixers: MixersOption = None,
    lengths: Annotated[str | None, typer.Option(help="Context lengths, with commas between.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a step, at every length.")] = None,
    width: Annotated[int | None, typer.Option(min=1)] = None,
    layers: Annotated[int | None, typer.Option(min=1)] = None,
    arithmetic: Annotated[str | None, typer.Option(help="float32, tf32 or bf16.")] = None,
    seconds: SecondsOption = None,
    device: DeviceOption = "auto",
    to: ToOption = Path("benchmarks"),
) -> None:
    """Training tokens a second of every mixer, and of hybrids, against context length."""
    from statelab.sweeps.bench import bench_throughput as run

    changes: dict[str, Any] = {"lengths": _numbers(lengths, "--lengths"), "tokens": tokens}
    changes |= {"width": width, "layers": layers, "arithmetic": arithmetic, "seconds": seconds}
    for text in run(_device(device), _words(mixers), changes, to):
        typer.echo(text)


def bench_decode(
    mixers: MixersOption = None,
    part: Annotated[str, typer.Option(help="steps of layers, sequences of whole models, or both.")] = "both",
    arithmetic: Annotated[
        str | None, typer.Option(help="Of steps, with commas between; sequences have the last.")
    ] = None,
    states: Annotated[str | None, typer.Option(help="State widths of steps, with commas between.")] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Tokens that sequences read, and then write, with commas between.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows at once.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens before a step.")] = None,
    width: Annotated[int | None, typer.Option(min=1)] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Of sequences; a step is of one layer.")] = None,
    seconds: SecondsOption = None,
    device: DeviceOption = "auto",
    to: ToOption = Path("benchmarks"),
) -> None:
    """Time of one streaming step of every layer, and of reading and writing sequences, checked as it is measured."""
    from statelab.sweeps.bench import bench_decode as run

    changes: dict[str, Any] = {"arithmetics": _words(arithmetic), "states": _numbers(states, "--states")}
    changes |= {"lengths": _numbers(lengths, "--lengths"), "batch": batch, "context": context}
    changes |= {"width": width, "layers": layers}
    for text in run(_device(device), _words(mixers), changes, to, part=part, seconds=seconds):
        typer.echo(text)


def _device(name: str) -> torch.device:
    from statelab.sweeps.device import pick_device
    from statelab.sweeps.errors import UserError

    try:
        return pick_device(name)
    except ValueError as error:
        raise UserError(str(error)) from None


def _words(text: str | None) -> tuple[str, ...] | None:
    return _parts(text, str)


def _numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    from statelab.sweeps.errors import UserError

    try:
        return _parts(text, int)
    except ValueError:
        raise UserError(f"{flag} {text}: whole numbers with commas between, as 512,1024") from None


def _parts(text: str | None, made: Callable[[str], T]) -> tuple[T, ...] | None:
    parts = [part.strip() for part in (text or "").split(",")]
    return tuple(made(part) for part in parts if part) or None
