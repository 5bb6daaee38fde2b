"""What a worker on a card takes next where there are several, so that all of them end at about one time.

As in guided self-scheduling (Polychronopoulos and Kuck 1987, IEEE Trans. Computers C-36), but by seconds and not by
numbers: the longest cell first, whole while it ends before everything could be over, else as many of its lanes as do.
Seconds come from populations of this study that have ended, and from the curves of those that are being trained.
Imports neither torch nor optuna.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from statelab.sweeps.cells import Cell
from statelab.sweeps.record import LaneFolder

if TYPE_CHECKING:
    from statelab.sweeps.trials import LaneState

OVERHEAD_LANES = 6
"""A population's time on a card is about that of its lanes and of so many more: 12 lanes take 0.6 of what 24 take."""
FEWEST_LANES = OVERHEAD_LANES
"""No share is smaller: more than half of its time would be what every population costs, whatever its size."""


@dataclass(frozen=True)
class Population:
    """Lanes of a cell that one worker trains, or has trained: `share` of their steps took `seconds`."""

    cell: Cell
    worker: str
    lanes: int
    running: bool
    began: float
    seconds: float
    share: float

    @property
    def is_timed(self) -> bool:
        """Whether it says how long its cell takes."""
        return self.share > 0 and self.seconds > 0


_Taken = tuple[float, float, str]
"""When a lane began and ended, and its id."""


def shared(
    cells: Sequence[Cell],
    limit: int,
    fresh: Collection[str],
    states: Mapping[str, LaneState],
    folder: Path,
    workers: int,
) -> tuple[Sequence[Cell], int]:
    """The cells, that first of which a free worker takes lanes, and how many of it; `fresh` are the lanes that wait."""
    counts = [sum(cell.lane_id(lane) in fresh for lane in cell.lanes) for cell in cells]
    waiting = {index: count for index, count in enumerate(counts) if count}
    if not waiting:
        return cells, limit
    now = time.time()
    first, most = next_share(waiting, cells, populations(cells, states, folder, now), workers, now)
    return [cells[first], *cells[:first], *cells[first + 1 :]], min(limit, most)


def populations(
    cells: Sequence[Cell], states: Mapping[str, LaneState], folder: Path, now: float
) -> list[Population]:
    """Those that the ledger knows a worker of; one that runs is as far as the study's folder tells, if it does.

    What went on from a checkpoint looks quicker than it is, since its steps are counted from the first one.
    """
    taken: dict[tuple[int, str, bool], list[_Taken]] = defaultdict(list)
    for index, cell in enumerate(cells):
        for lane_id in map(cell.lane_id, cell.lanes):
            state = states.get(lane_id)
            if state is None or not state.worker or state.began is None:
                continue
            if state.state == "running":
                taken[index, state.worker, True].append((state.began, now, lane_id))
            elif state.state == "finished" and state.ended is not None:
                taken[index, state.worker, False].append((state.began, state.ended, lane_id))
    found = []
    for (index, worker, running), lanes in taken.items():
        for group in _claimed_together(sorted(lanes)):
            began, share, last = group[0][0], 1.0, max(ended for _, ended, _ in group)
            if running:
                share, last = _progress(LaneFolder(folder, group[0][2]), cells[index].training.steps)
            found.append(Population(cells[index], worker, len(group), running, began, last - began, share))
    return found


def next_share(
    waiting: Mapping[int, int], cells: Sequence[Cell], known: Sequence[Population], workers: int, now: float
) -> tuple[int, int]:
    """The index of the cell that a free worker takes lanes of, and how many.

    `waiting` has how many lanes wait of each cell that has any, `known` what is trained and was; `workers` are all
    who live, this one included.
    """
    paces = _paces([cells[index] for index in waiting], known)
    pace_of = dict(zip(waiting, paces, strict=True))
    seconds = {index: pace_of[index] * (lanes + OVERHEAD_LANES) for index, lanes in waiting.items()}
    first = max(waiting, key=lambda index: seconds[index])
    left = sum(seconds.values()) + _seconds_left(known, now)
    pace, lanes = pace_of[first], waiting[first]
    if seconds[first] <= left / workers:
        return first, lanes
    # Cutting it adds one population to what is left.
    end = (left + pace * OVERHEAD_LANES) / workers
    most = max(FEWEST_LANES, math.ceil(end / pace - OVERHEAD_LANES - 1e-6))
    return first, most if lanes - most >= FEWEST_LANES else lanes


def _claimed_together(lanes: Sequence[_Taken]) -> list[list[_Taken]]:
    """Lanes in the order of their beginnings, apart where one began after another one had ended."""
    groups: list[list[_Taken]] = []
    for lane in lanes:
        if groups and lane[0] < groups[-1][0][1]:
            groups[-1].append(lane)
        else:
            groups.append([lane])
    return groups


def _paces(cells: Collection[Cell], known: Sequence[Population]) -> list[float]:
    """Seconds that a cell's whole training takes for each lane: its own, else its model's, else all models' mean.

    Where nothing is known yet they are in another unit, which is as good for comparing.
    """
    rates = [
        (p.cell, p.seconds / p.share / (p.lanes + OVERHEAD_LANES) / _work(p.cell))
        for p in known
        if p.is_timed
    ]
    found = []
    for cell in cells:
        own = [rate for other, rate in rates if other is cell]
        models = [rate for other, rate in rates if other.model_label == cell.model_label]
        best = own or models or [rate for _, rate in rates] or [1.0]
        found.append(fmean(best) * _work(cell))
    return found


def _seconds_left(known: Sequence[Population], now: float) -> float:
    running = [population for population in known if population.running]
    in_seconds = any(population.is_timed for population in known)
    left = 0.0
    for p, pace in zip(running, _paces([p.cell for p in running], known), strict=True):
        gone = now - p.began if in_seconds else 0.0
        left += max(0.0, pace * (p.lanes + OVERHEAD_LANES) - gone)
    return left


def _work(cell: Cell) -> float:
    return float(cell.training.steps * cell.training.length)


def _progress(lane: LaneFolder, steps: int) -> tuple[float, float]:
    """The share of a lane's steps that its curve has, and when its last point was written."""
    curve = lane.curve()
    try:
        return (curve[-1]["step"] / steps if curve else 0.0), (lane.path / "curve.jsonl").stat().st_mtime
    except OSError:
        return 0.0, 0.0
