"""How many lanes of a cell fit into a device's memory, told before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from statelab.models.memory import free_bytes, predict
from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell


def in_fitting_parts(
    cell: Cell, lanes: Sequence[Lane], device: torch.device, say: Callable[[str], None]
) -> list[Sequence[Lane]]:
    """The lanes as populations of about one size that fit into the memory that is free; says so if that is several.

    On a card only: elsewhere running a step's shapes through would take longer than many a small study. What is told
    wrongly, or cannot be told, is found by running out of memory.
    """
    free = free_bytes(device) if device.type == "cuda" and len(lanes) > 1 else None
    if free is None:
        return [lanes] if lanes else []
    seeds = len({lane.seed for lane in lanes})
    try:
        memory = predict(cell.task, cell.model, cell.training, cell.evaluation, device, seeds)
    except ValueError:
        return [lanes]
    if memory.total(len(lanes), seeds) <= free:
        return [lanes]
    parts = -(-len(lanes) // memory.lanes_in(free))
    size = -(-len(lanes) // parts)
    say(
        f"{cell.label}: {len(lanes)} lanes need about {gib(memory.total(len(lanes), seeds))}, "
        f"{gib(free)} are free: going on with {size} at a time"
    )
    return [lanes[start : start + size] for start in range(0, len(lanes), size)]


def memory_of(cell: Cell, lanes: int, device: torch.device) -> str:
    """What a population of a cell's first lanes will take on a device, as part of a sentence."""
    seeds = len({lane.seed for lane in cell.lanes[:lanes]})
    try:
        memory = predict(cell.task, cell.model, cell.training, cell.evaluation, device, seeds)
    except ValueError as error:
        return str(error)
    return f"about {gib(memory.total(lanes, seeds))} of memory"


def gib(size: int) -> str:
    """A number of bytes as a person reads it."""
    return f"{size / 2**30:.2g} GiB" if size >= 2**29 else f"{max(1, round(size / 2**20))} MiB"
