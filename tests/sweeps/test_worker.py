"""A worker in this process: populations, records, too little memory, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from statelab.models.learner import Learner
from statelab.models.population import Population
from statelab.sweeps.cells import cells_of
from statelab.sweeps.errors import DeviceLost
from statelab.sweeps.populations import Populations
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import collect, collect_curves, collect_lengths
from statelab.sweeps.stop import Interrupted, StopSignals
from statelab.sweeps.study import Ledger
from statelab.sweeps.worker import Worker
from tests.sweeps.specs import small

TIMING = ["seconds"]


def run(
    folder: Path, *, stop: StopSignals | None = None, max_lanes: int = 64, retries: int = 1, **changes: Any
) -> list[str]:
    """Run a small study in `folder`; what the worker said."""
    cells = cells_of(parse_spec(small(**changes), ""))
    ledger = Ledger(folder, "small")
    ledger.sync(cells)
    said: list[str] = []
    stop = stop or StopSignals()
    Worker(folder, ledger, cells, torch.device("cpu"), stop, max_lanes, said.append, retries).work()
    return said


def results(folder: Path) -> pd.DataFrame:
    """Everything recorded but times, in a fixed order."""
    lanes = collect(folder).drop(columns=TIMING).sort_values("id", ignore_index=True)
    lengths = collect_lengths(folder).sort_values(["id", "length"], ignore_index=True)
    curves = collect_curves(folder).sort_values(["id", "step"], ignore_index=True)
    return pd.concat([lanes, lengths, curves], axis=1)


def test_every_lane_leaves_a_record(tmp_path: Path) -> None:
    run(tmp_path)
    lanes = collect(tmp_path)
    assert len(lanes) == lanes["id"].nunique() == 12
    assert (lanes["status"] == "finished").all()
    assert lanes["parameters"].nunique() == 2
    assert collect_lengths(tmp_path).groupby("id")["length"].apply(list).tolist() == [[6, 9]] * 12
    assert collect_curves(tmp_path).groupby("id")["step"].apply(list).tolist() == [[5, 10, 12]] * 12
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_a_rerun_runs_nothing_and_more_seeds_run_only_those(tmp_path: Path) -> None:
    run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("lanes/*/result.json")}
    run(tmp_path)
    run(tmp_path, sweep__seeds=4)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("lanes/*/result.json")}
    assert len(after) == 16
    assert {path: after[path] for path in before} == before


def test_smaller_populations_give_the_same_results_to_rounding(tmp_path: Path) -> None:
    exact: dict[str, Any] = {"training__arithmetic": "float64"}
    run(tmp_path / "one", **exact)
    run(tmp_path / "two", max_lanes=2, **exact)
    pd.testing.assert_frame_equal(results(tmp_path / "one"), results(tmp_path / "two"), atol=1e-9, rtol=0)


def test_out_of_memory_halves_the_population_says_so_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact: dict[str, Any] = {"training__arithmetic": "float64"}
    run(tmp_path / "whole", **exact)
    forward = Population.forward

    def small_memory(self: Population, tokens: Tensor) -> Tensor:
        if self.lanes > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, tokens)

    monkeypatch.setattr(Population, "forward", small_memory)
    said = run(tmp_path / "halved", **exact)
    assert [line.split(";")[1] for line in said] == [
        " going on with 3 at a time",
        " going on with 2 at a time",
    ]
    pd.testing.assert_frame_equal(
        results(tmp_path / "whole"), results(tmp_path / "halved"), atol=1e-9, rtol=0
    )


def test_one_lane_too_large_for_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(self: Population, tokens: Tensor) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    monkeypatch.setattr(Population, "forward", no_memory)
    with pytest.raises(MemoryError, match="one lane alone does not fit into the memory of cpu"):
        run(tmp_path)


@pytest.mark.parametrize("after", [1, 5, 7, 12, 13])
def test_a_stopped_study_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    run(tmp_path / "whole")
    stop = StopSignals()
    made = 0
    gradients = Learner.gradients

    def counting(self: Learner, step: int) -> Tensor:
        nonlocal made
        made += 1
        if made == after:
            stop.received = 2
        return gradients(self, step)

    monkeypatch.setattr(Learner, "gradients", counting)
    with pytest.raises(Interrupted) as caught:
        run(tmp_path / "stopped", stop=stop)
    assert caught.value.exit_code == 130
    run(tmp_path / "stopped")
    pd.testing.assert_frame_equal(
        results(tmp_path / "whole"), results(tmp_path / "stopped"), check_exact=True
    )


def test_a_broken_checkpoint_is_left_out(tmp_path: Path) -> None:
    cell, _ = cells_of(parse_spec(small(), ""))
    path = Populations(tmp_path).path([cell.lane_id(lane) for lane in cell.lanes])
    path.write_bytes(b"not a checkpoint")
    said = run(tmp_path)
    assert len(collect(tmp_path)) == 12
    assert "no readable checkpoint" in said[0]
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.fixture
def breaks_on(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Seeds on which training raises an error."""
    bad: set[int] = set()
    gradients = Learner.gradients

    def breaking(self: Learner, step: int) -> Tensor:
        if step == 3 and bad & {lane.seed for lane in self.lanes}:
            raise RuntimeError("the layer is broken")
        return gradients(self, step)

    monkeypatch.setattr(Learner, "gradients", breaking)
    return bad


ONE_CELL: dict[str, Any] = {
    "models": [{"name": "GRU", "width": 8, "layers": ["gru"]}],
    "sweep__learning_rate": 1e-3,
}


@pytest.mark.parametrize("retries", [0, 2])
def test_an_error_fails_lanes_which_are_tried_as_often_as_the_spec_says(
    tmp_path: Path, breaks_on: set[int], retries: int
) -> None:
    breaks_on |= {0, 1, 2}
    said = run(tmp_path, retries=retries, **ONE_CELL)
    ledger = Ledger(tmp_path, "small")
    assert list(ledger.failed().values()) == ["RuntimeError: the layer is broken"] * 3
    assert len(said) == 1 + 3 * retries, "together once, then each alone"
    lane = next(iter(ledger.failed()))
    assert "in breaking" in (tmp_path / "lanes" / lane / "error.txt").read_text()
    assert not run(tmp_path, retries=retries, **ONE_CELL), "what has failed for good is left alone"
    breaks_on.clear()
    assert ledger.sync(cells_of(parse_spec(small(**ONE_CELL), "")), retry_failed=True) == 3
    assert not run(tmp_path, **ONE_CELL)
    assert len(collect(tmp_path)) == 3
    assert not ledger.failed()


def test_a_lane_that_fails_takes_no_other_with_it(tmp_path: Path, breaks_on: set[int]) -> None:
    breaks_on.add(1)
    said = run(tmp_path, **ONE_CELL)
    assert sorted(collect(tmp_path)["seed"]) == [0, 2]
    assert len(Ledger(tmp_path, "small").failed()) == 1
    assert said[0].startswith("parity × GRU: 3 lanes failed (3 of them will be tried again, each alone)")


def test_a_lost_device_ends_the_worker_and_fails_its_lanes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an illegal access every operation of the process fails: other cells would fail for nothing."""
    gradients = Learner.gradients

    def losing(self: Learner, step: int) -> Tensor:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Learner, "gradients", losing)
    with pytest.raises(DeviceLost, match="the same command goes on"):
        run(tmp_path)
    counts = Ledger(tmp_path, "small").counts(
        cell.lane_id(lane) for cell in cells_of(parse_spec(small(), "")) for lane in cell.lanes
    )
    assert counts["waiting"] == 12
    monkeypatch.setattr(Learner, "gradients", gradients)
    run(tmp_path)
    assert len(collect(tmp_path)) == 12


@pytest.mark.parametrize(("device", "crew"), [("cuda", 3), ("cpu", None)])
def test_only_workers_on_cards_take_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, crew: int | None
) -> None:
    """On cores a population's time is its lanes': what a worker takes there depends on nobody else."""
    ledger = Ledger(tmp_path, "small")
    asked: list[tuple[int | None, int]] = []

    def claim(self: Ledger, cells: Any, limit: int, together: Any, crew: int | None) -> None:
        asked.append((crew, Ledger(tmp_path, "small").workers()))

    monkeypatch.setattr(Ledger, "claim", claim)
    Worker(tmp_path, ledger, (), torch.device(device), StopSignals(), crew=3).work()
    assert asked == [(crew, 1)], "a process is one worker, by whichever of its ledgers"
    other = Ledger(tmp_path, "small")
    other.worker = "elsewhere:1:1"
    assert other.workers() == 1, "the worker has left"
    other.beat()
    assert ledger.workers() == 2
