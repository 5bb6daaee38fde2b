"""Times of repeated work with their spread, and work replayed as one CUDA graph: what speed benchmarks share."""

from __future__ import annotations

import gc
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from statelab.kernels.capture import recording
from statelab.models.benchmark import clock
from statelab.models.population import is_out_of_memory

MOST_RUNS = 20
"""Timings of one piece of work, at most."""

GROUP_SECONDS, GROUP_CALLS = 2e-3, 500
"""Calls so short that a clock would disturb them are timed several at once, until they take so long together."""

LONGEST_SENTENCE = 160


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Seconds that one call takes: median, least and most of `runs` timings."""

    median: float
    least: float
    most: float
    runs: int


def timed(work: Callable[[], object], device: torch.device, seconds: float) -> Spread:
    """Time `work`, which is warm already, again and again for about so many seconds, at most MOST_RUNS times.

    A call that takes longer than that is timed once. Calls of less than GROUP_SECONDS are timed in groups, so their
    least and most are those of means.
    """
    first = clock(work, device)
    if first > seconds:
        return Spread(median=first, least=first, most=first, runs=1)
    group = max(1, min(GROUP_CALLS, math.ceil(GROUP_SECONDS / first)))

    def several() -> None:
        for _ in range(group):
            work()

    runs = max(1, min(MOST_RUNS, int(seconds / (group * first))))
    times = [clock(several, device) / group for _ in range(runs)]
    return Spread(median=statistics.median(times), least=min(times), most=max(times), runs=runs)


@dataclass(frozen=True)
class Replay:
    """Work as `run` does it: `made` is captured or eager; `reason` says why a card's work is not captured."""

    run: Callable[[], object]
    made: str
    reason: str = ""


def captured(work: Callable[[], object], device: torch.device) -> Replay:
    """Run `work` twice, then make it one CUDA graph, without running it; elsewhere, or where that fails, as it is.

    All that it reads and writes must be tensors that stay where they are. What holds the replay holds the graph.
    """
    for _ in range(2):
        work()
    if device.type != "cuda":
        return Replay(work, "eager")
    graph = torch.cuda.CUDAGraph()
    try:
        torch.cuda.synchronize(device)
        with recording(graph):
            work()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return Replay(work, "eager", f"not captured: {sentence(error)}")
    return Replay(graph.replay, "captured")


def sentence(error: Exception) -> str:
    """What an exception says, in one line."""
    if is_out_of_memory(error):
        return "out of memory"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:LONGEST_SENTENCE]


@contextmanager
def noted() -> Iterator[list[str]]:
    """The warnings that models give within, in a list that is filled at the end, instead of on the screen."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    ours = Path(__file__).parent
    notes += [str(each.message) for each in caught if Path(each.filename).parent == ours]


def rows_of(
    found: Iterable[Any], sizes: object, names: Sequence[str], device: torch.device
) -> list[dict[str, Any]]:
    """A tidy row for each measurement, with those of the sizes that are named, and the place at which it was made."""
    where = {name: getattr(sizes, name) for name in names} | {"place": place_of(device)}
    return [asdict(each) | where for each in found]


def start_afresh(device: torch.device) -> None:
    """Let go of a card's memory that earlier work held, and count its peak anew."""
    if device.type == "cuda":
        # What holds a graph may be held in turn by what it runs.
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def place_of(device: torch.device) -> str:
    """The device and torch's version, for a table's head."""
    on_card = device.type == "cuda"
    where = torch.cuda.get_device_name(device) if on_card else f"CPU, {torch.get_num_threads()} threads"
    return f"{where}, torch {torch.__version__}"
