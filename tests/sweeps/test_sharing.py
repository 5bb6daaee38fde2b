"""What workers on cards take at the end of a study: in numbers, in a simulated study, and from a ledger."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from statelab.sweeps.cells import Cell, cells_of
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.sharing import OVERHEAD_LANES, Population, next_share, populations
from statelab.sweeps.study import Ledger
from tests.sweeps.specs import small

LANES = 24
EVALUATIONS = 6
Rule = Callable[[dict[int, int], Sequence[Cell], Sequence[Population], int, float], tuple[int, int]]


def cells_called(*models: str) -> list[Cell]:
    """A cell of one lane for each name; how many lanes a test means is a matter of its own."""
    (cell, *_) = cells_of(parse_spec(small(sweep__learning_rate=1e-2, sweep__seeds=1), ""))
    return [replace(cell, model_label=name, task_label=str(i)) for i, name in enumerate(models)]


def whole_in_order(
    waiting: dict[int, int], cells: Sequence[Cell], known: Sequence[Population], workers: int, now: float
) -> tuple[int, int]:
    return next(iter(waiting.items()))


def by_lanes(
    waiting: dict[int, int], cells: Sequence[Cell], known: Sequence[Population], workers: int, now: float
) -> tuple[int, int]:
    """Guided self-scheduling as it is usually told."""
    first, lanes = next(iter(waiting.items()))
    return first, min(lanes, max(OVERHEAD_LANES, -(-sum(waiting.values()) // workers)))


def makespan(lengths: Sequence[float], workers: int, rule: Rule) -> float:
    """Seconds for cells of LANES lanes, which last so long as whole populations; two of a length are of one model.

    A worker's progress is known by evaluations, of which a population has EVALUATIONS.
    """
    cells = cells_called(*map(str, lengths))
    waiting = dict.fromkeys(range(len(cells)), LANES)
    free = [(0.0, worker) for worker in range(workers)]
    taken: list[tuple[int, str, int, float, float]] = []
    while waiting:
        now, worker = heapq.heappop(free)
        known = []
        for index, name, lanes, began, end in taken:
            running = end > now
            share = int(EVALUATIONS * (now - began) / (end - began)) / EVALUATIONS if running else 1.0
            known.append(Population(cells[index], name, lanes, running, began, share * (end - began), share))
        first, most = rule(waiting, cells, known, workers, now)
        most = min(most, waiting[first])
        end = now + lengths[first] * (most + OVERHEAD_LANES) / (LANES + OVERHEAD_LANES)
        taken.append((first, str(worker), most, now, end))
        waiting[first] -= most
        waiting = {index: lanes for index, lanes in waiting.items() if lanes}
        heapq.heappush(free, (end, worker))
    return max(end for *_, end in taken)


@pytest.mark.parametrize(
    ("lengths", "workers", "times"),
    [
        ((10, 16, 10, 16), 2, 1.95),
        ((10, 10, 10), 2, 1.8),
        ((16, 10, 16), 2, 1.75),
        ((10,), 2, 1.5),
        ((10, 16, 10, 16), 4, 3.25),
        ((10, 16) * 4, 2, 1.95),
        ((10, 16) * 4, 4, 3.9),
        ((10,) * 8, 8, 7.9),
        ((10, 16, 10, 16), 8, 5.0),
    ],
)
def test_workers_end_at_about_one_time(lengths: tuple[int, ...], workers: int, times: float) -> None:
    shared, whole, lanes = (
        makespan(lengths, workers, rule) for rule in (next_share, whole_in_order, by_lanes)
    )
    assert sum(lengths) / shared >= times
    assert shared <= min(whole, lanes) + 1e-9, "no worse than whole cells, nor than counting lanes"


def test_a_last_cell_is_cut_where_the_other_worker_will_be_through() -> None:
    (cell,) = cells = cells_called("GRU")
    waiting, busy = {0: 24}, Population(cell, "other", 24, True, 0.0, 20.0, 2 / 3)
    # It takes 30 s, of which 10 are left: 31 s of work remain for two when a third population is made.
    assert next_share(waiting, cells, [busy], 2, 20.0) == (0, 17)
    assert next_share(waiting, cells, [busy], 1, 20.0) == (0, 24)
    assert next_share({0: 12}, cells, [busy], 2, 20.0) == (0, 12), "too few lanes would be left"
    assert next_share({0: 24}, cells, [], 2, 0.0) == (0, 12)
    assert next_share({0: 24}, cells, [], 9, 0.0) == (0, OVERHEAD_LANES), "no share is smaller"


def test_the_longest_cell_comes_first_and_models_are_known_by_their_other_cells() -> None:
    cells = cells_called("GRU", "Mamba-2", "GRU", "Mamba-2")
    waiting = {2: 24, 3: 24}
    known = [
        Population(cells[0], "one", 24, False, 0.0, 10.0, 1.0),
        Population(cells[1], "two", 24, True, 0.0, 8.0, 1 / 2),
    ]
    assert next_share(waiting, cells, known, 2, 10.0) == (3, 24)
    assert next_share(waiting, cells, [], 2, 0.0) == (2, 24), "the spec's order where nothing is known"
    longer = replace(cells[2], training=replace(cells[2].training, steps=10 * cells[2].training.steps))
    assert next_share(waiting, [*cells[:2], longer, cells[3]], known, 2, 10.0)[0] == 2


@pytest.fixture
def cells() -> tuple[Cell, ...]:
    """Two cells of 24 lanes."""
    return cells_of(parse_spec(small(sweep__seeds=12), ""))


def other_worker(folder: Path, name: str, seconds: float) -> Ledger:
    """The ledger as a worker on another machine has it, whose lease runs for so long from now."""
    ledger = Ledger(folder, "small")
    ledger.worker = name
    ledger._storage.set_study_user_attr(ledger._id, f"lease {name}", time.time() + seconds)
    return ledger


def taken(
    ledger: Ledger, cells: Sequence[Cell], crew: int = 1, **how: Sequence[Sequence[str]]
) -> tuple[int, int]:
    claimed = ledger.claim(cells, 64, crew=crew, **how)
    assert claimed is not None
    return cells.index(claimed[0]), len(claimed[1])


def test_workers_that_live_take_shares(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    other = other_worker(tmp_path, "elsewhere:1:1", 100)
    assert taken(ledger, cells) == (0, 24), "its half of what waits"
    assert taken(other, cells) == (1, 24), "as much as the other one has"
    ledger.release(cells[0].lane_id(lane) for lane in cells[0].lanes)
    other.release(cells[1].lane_id(lane) for lane in cells[1].lanes)
    assert taken(ledger, cells[:1]) == (0, 12)
    assert taken(other, cells[:1]) == (0, 12)


@pytest.mark.parametrize(("seconds", "crew", "lanes"), [(-1, 1, 24), (100, 1, 12), (-1, 2, 12)])
def test_who_counts_as_a_worker(
    tmp_path: Path, cells: tuple[Cell, ...], seconds: float, crew: int, lanes: int
) -> None:
    """One whose lease runs, whether it holds lanes or not; and those that are known to have been started."""
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    other_worker(tmp_path, "elsewhere:1:1", seconds)
    assert taken(ledger, cells[:1], crew) == (0, lanes)


def test_a_worker_that_has_ended_does_not_count(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    other_worker(tmp_path, "elsewhere:1:1", 100).leave()
    assert taken(ledger, cells[:1]) == (0, 24)


def test_lanes_of_one_checkpoint_are_not_cut(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    group = [cells[0].lane_id(lane) for lane in cells[0].lanes[:20]]
    assert taken(ledger, cells[:1], crew=2, together=[group]) == (0, 20)


def test_on_cores_nothing_is_cut(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    other_worker(tmp_path, "elsewhere:1:1", 100)
    assert ledger.claim(cells, 64) == (cells[0], cells[0].lanes)


def test_the_ledger_and_the_curves_tell_how_long_populations_take(
    tmp_path: Path, cells: tuple[Cell, ...]
) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    first, *rest = (cells[0].lane_id(lane) for lane in cells[0].lanes[:3])
    assert ledger.claim(cells, 3) is not None
    now = time.time()
    found = populations(cells, ledger.states(), tmp_path, now)
    assert [(p.cell, p.worker, p.lanes, p.running, p.is_timed) for p in found] == [
        (cells[0], ledger.worker, 3, True, False)
    ]
    lane = LaneFolder(tmp_path, first)
    lane.start({})
    lane.add_point({"step": 3})
    os.utime(lane.path / "curve.jsonl", (now, now + 20))
    (running,) = populations(cells, ledger.states(), tmp_path, now + 30)
    assert (running.share, round(running.seconds)) == (3 / cells[0].training.steps, 20)
    for lane_id in (first, *rest):
        ledger.tell(lane_id, 0.5)
    (ended,) = populations(cells, ledger.states(), tmp_path, now + 30)
    assert (ended.lanes, ended.running, ended.share) == (3, False, 1.0)
    assert 0 < ended.seconds < 20
    ledger.claim(cells, 2)
    ledger.fail([cells[0].lane_id(cells[0].lanes[3])], "it is broken", 0)
    again = populations(cells, ledger.states(), tmp_path, now)
    assert sorted((p.lanes, p.running) for p in again) == [(1, True), (3, False)], "what failed tells nothing"


def test_two_populations_of_one_cell_and_worker_are_told_apart(
    tmp_path: Path, cells: tuple[Cell, ...]
) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    for count in (2, 4):
        claimed = ledger.claim(cells, count)
        assert claimed is not None
        for lane in claimed[1]:
            ledger.tell(cells[0].lane_id(lane), 0.5)
    found = populations(cells, ledger.states(), tmp_path, time.time())
    assert [p.lanes for p in found] == [2, 4]
