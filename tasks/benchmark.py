"""How fast rows are made: each task at its published sizes, beside the generators it follows.

Those generators, and how their figures came about, stand in `tasks/published_sizes.py`.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import fields

import torch

from statelab.tasks import TASKS
from statelab.tasks.published_sizes import SIZES, Size
from statelab.tasks.rows import Rows

LANES, BATCH, STEPS = 24, 64, 32
"""On a GPU: the lanes of a population, rows of each a step, and the steps whose rows are made at once."""

WIDTH = 100
_LEAST_CALLS = 3
_WARM_BLOCK = 31 << 20


_LEFT = 2
_CPU_HEAD = ("task", "setting", "length", "rows/s", "published", "ratio", "target", "")
_GPU_HEAD = ("task", "setting", "length", "ms/step", "target", "")


def table(batch: int = 1024, seconds: float = 0.5, device: torch.device | str = "cpu") -> str:
    """A text table, at most 100 columns wide, of how fast every task's rows are made at its SIZES.

    On a CPU: rows a second of one core, by the core's own time, so that other processes matter little; the
    fastest of the calls for `batch` rows that `seconds` allow (3 or more), beside the published figure.
    torch's number of threads is 1 meanwhile and then as it was. Not counted are the first call of each, and
    a large block that is allocated and freed first: until a process has freed such a block, glibc gives
    memory back to the kernel after each call and pays for it in the next, and a training process has long
    freed many. On another device: milliseconds a step of a population
    of 24 lanes × batch 64 whose rows of 32 steps are made by one call (`batch` is not used).

    Raises ValueError for a batch below 1 or seconds that are not above 0.
    """
    if batch < 1 or not seconds > 0:
        raise ValueError(
            f"bench tasks: batch {batch} and {seconds} seconds given; use batch >= 1, seconds > 0"
        )
    device = torch.device(device)
    return _cpu_table(batch, seconds) if device.type == "cpu" else _gpu_table(device, seconds)


def _cpu_table(batch: int, seconds: float) -> str:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.empty(_WARM_BLOCK, dtype=torch.uint8)
        lines = [_cpu_line(size, batch, seconds) for size in SIZES]
    finally:
        torch.set_num_threads(threads)
    return _laid_out(
        f"Rows a second on one core, {batch} at a time, the fastest of {seconds:g} s",
        [_CPU_HEAD, *lines],
        "published: rows a second on one core of mad-lab (noisy and fuzzy recall, selective copying), zoology "
        "(mqar, running parity), unlocking_state_tracking (parity, arithmetic), DeltaProduct (group words) and "
        "RULER (needle); they were measured on an AMD EPYC core, so read the ratio as a size, not to the digit.",
    )


def _cpu_line(size: Size, batch: int, seconds: float) -> tuple[str, ...]:
    rows = Rows.span([0], "train", 0, batch)
    rate = batch / fastest(lambda: size.task.sample(rows, size.length), seconds, time.thread_time)
    return (
        *_named(size),
        f"{rate:,.0f}",
        "" if size.published is None else f"{size.published:,.0f}",
        "" if size.published is None else f"{rate / size.published:,.0f}",
        "" if size.target is None else f"{size.target:,.0f}",
        "" if size.target is None else _verdict(rate >= size.target),
    )


def _gpu_table(device: torch.device, seconds: float) -> str:
    lines = [_gpu_line(size, device, seconds) for size in SIZES]
    return _laid_out(
        f"Milliseconds a step for {LANES} lanes × batch {BATCH} on {_device_name(device)}",
        [_GPU_HEAD, *lines],
        f"The rows of {STEPS} steps are made by one call, whose time is divided by {STEPS}; the fastest of "
        f"{seconds:g} s.",
    )


def _gpu_line(size: Size, device: torch.device, seconds: float) -> tuple[str, ...]:
    rows = Rows.span(range(LANES), "train", 0, BATCH * STEPS, device)

    def draw() -> None:
        size.task.sample(rows, size.length)
        _wait(device)

    name, target = _named(size), f"{size.step_target:.1f}"
    try:
        step = 1e3 * fastest(draw, seconds) / STEPS
    except torch.OutOfMemoryError:
        return (*name, "no memory", target, "")
    return (*name, f"{step:.3f}", target, _verdict(step <= size.step_target))


def fastest(
    work: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds by `clock` of the fastest call of `work` in `seconds`, of 3 or more, after one uncounted."""
    work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _LEAST_CALLS or time.perf_counter() < end:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _named(size: Size) -> tuple[str, str, str]:
    task = size.task
    name = next(name for name, cls in TASKS.items() if type(task) is cls)
    set_ = {f.name: getattr(task, f.name) for f in fields(task) if getattr(task, f.name) != f.default}
    return name, ", ".join(f"{key}={value}" for key, value in set_.items()), str(size.length)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _laid_out(title: str, lines: list[tuple[str, ...]], note: str) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join(
            cell.ljust(width) if i < _LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([title, "", *texts, "", textwrap.fill(note, WIDTH)]) + "\n"
