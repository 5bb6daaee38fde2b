"""How long a call takes on a device, how much memory it needs, what the device can do at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from statelab.kernels.capture import recording

REPEATS = 7
"""Timed calls on a CPU."""
SECONDS, FEWEST, MOST = 0.15, 3, 50
"""Of timed calls on a GPU: about how long they take together, how few and how many there are."""
FLUSHED = 2**28
"""Bytes written before a timed call, more than a GPU's caches hold."""


@dataclass(frozen=True)
class Timed:
    """Milliseconds, the median of several calls; `clock` says how they were taken."""

    milliseconds: float
    clock: str


def measure(call: Callable[[], Any], device: torch.device, capture: bool = True) -> Timed:
    """The time of `call`, after calls that do not count, which compile and tune.

    On a GPU: between two events, with cold caches, of a CUDA graph's replay ("graph") where `capture` asks for it
    and the call allows it, else of the call itself ("events"), whose time then holds the gaps in which the GPU
    waits for the CPU.
    """
    call()
    if device.type != "cuda":
        return Timed(_median_of(lambda: _seconds(call), REPEATS), "clock")
    call()
    torch.cuda.synchronize(device)
    graph = _captured(call) if capture else None
    again = call if graph is None else graph.replay
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=device)
    first = _between_events(again, flushed)
    count = min(MOST, max(FEWEST, int(1e3 * SECONDS / max(first, 1e-3))))
    taken = statistics.median(_between_events(again, flushed) for _ in range(count))
    return Timed(taken, "events" if graph is None else "graph")


def peak(call: Callable[[], Any], device: torch.device) -> float:
    """GiB that `call` holds at its peak beyond what was held before; 0 on a CPU, which does not count it."""
    if device.type != "cuda":
        call()
        return 0.0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    made = call()
    torch.cuda.synchronize(device)
    del made
    return (torch.cuda.max_memory_allocated(device) - before) / 2**30


@dataclass(frozen=True)
class Ceilings:
    """What this device does where nothing else limits it: TFLOP/s of large products, TB/s of a copy."""

    bf16: float
    tf32: float
    copy: float

    def __str__(self) -> str:
        return f"{self.bf16:.0f} TFLOP/s bf16, {self.tf32:.0f} tf32, copy {self.copy:.2f} TB/s"


def ceilings(device: torch.device) -> Ceilings:
    """Measured now, on random numbers: products of 8192 × 8192 matrices, a copy of 2 GiB."""
    size = 8192
    rates = []
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for dtype in (torch.bfloat16, torch.float32):
            one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
            rates.append(2e-9 * size**3 / measure(lambda: one @ other, device).milliseconds)  # noqa: B023
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    source = torch.ones(2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2e-9 * source.numel() / measure(lambda: target.copy_(source), device).milliseconds
    return Ceilings(rates[0], rates[1], copied)


def _captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph | None:
    """A graph of the call, or None if it cannot be captured: it waits for the device, say."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with recording(graph):
            call()
    except Exception:  # What a captured call may not do, libraries report in errors of many kinds.
        torch.cuda.synchronize()
        return None
    return graph


def _between_events(call: Callable[[], Any], flushed: torch.Tensor) -> float:
    """Milliseconds; while caches are flushed the CPU runs ahead, so that no launch is waited for."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flushed.zero_()
    start.record()
    call()
    end.record()
    end.synchronize()
    taken: float = start.elapsed_time(end)
    return taken


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _median_of(sample: Callable[[], float], count: int) -> float:
    return statistics.median(sample() for _ in range(count))
