"""Searches: settings are chosen on selection seeds alone, and what is reported is never pruned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statelab.sweeps.cells import Cell
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.plan import Plan, make_plan, most_lanes
from statelab.sweeps.read import SpecError, parse_spec
from statelab.sweeps.record import LaneFolder, collect, collect_selection, study_rule
from statelab.sweeps.search import place, rungs
from statelab.sweeps.spec import Spec
from tests.sweeps.specs import small
from tests.sweeps.test_record import row

Accuracy = Callable[[float, int], float]


def searching(**search: Any) -> Spec:
    return parse_spec(small(search={"seeds": 2} | search), "")


def finish(folder: Path, cells: tuple[Cell, ...], accuracy: Accuracy) -> int:
    """Record every lane that is not recorded yet, its accuracy a function of rate and seed; how many."""
    made = 0
    for cell in cells:
        for lane in cell.lanes:
            record = LaneFolder(folder, cell.lane_id(lane))
            if not record.finished():
                record.start({})
                rate = lane.optimiser.learning_rate
                record.commit(
                    {"row": row(accuracy=accuracy(rate, lane.seed), learning_rate=rate, seed=lane.seed)}
                )
                made += 1
    return made


def play(spec: Spec, folder: Path, accuracy: Accuracy) -> list[Plan]:
    """Every plan until nothing more is asked for."""
    plans = [make_plan(spec, folder)]
    while finish(folder, plans[-1].cells, accuracy):
        plans.append(make_plan(spec, folder))
    return plans


def test_a_grid_is_chosen_on_selection_seeds_and_reported_on_others(tmp_path: Path) -> None:
    first, *_, last = play(
        searching(), tmp_path, lambda rate, seed: 0.9 if rate == 1e-2 and seed > 99 else 0.1
    )
    assert {cell.purpose for cell in first.cells} == {"selection"}
    assert {lane.seed for cell in first.cells for lane in cell.lanes} == {1_000_000, 1_000_001}
    assert first.is_open
    assert not last.is_open
    assert [choice.setting.learning_rate for choice in last.choices] == [1e-2, 1e-2]
    reported = [cell for cell in last.cells if cell.purpose == "report"]
    assert [len(cell.lanes) for cell in reported] == [3, 3]
    assert {lane.seed for cell in reported for lane in cell.lanes} == {0, 1, 2}
    assert {lane.optimiser.learning_rate for cell in reported for lane in cell.lanes} == {1e-2}


@pytest.mark.parametrize(("objective", "chosen"), [("solved", 3e-3), ("accuracy", 1e-2)])
def test_the_objective_is_solved_lanes_or_mean_accuracy(
    tmp_path: Path, objective: str, chosen: float
) -> None:
    found = {(3e-3, 0): 0.65, (3e-3, 1): 0.0, (1e-2, 0): 0.55, (1e-2, 1): 0.55}
    plan = play(
        searching(objective=objective), tmp_path, lambda rate, seed: found.get((rate, seed % 10), 0.0)
    )[-1]
    assert plan.choices[0].setting.learning_rate == chosen


def test_a_lane_that_failed_counts_as_unsolved(tmp_path: Path) -> None:
    plan = make_plan(searching(), tmp_path)
    cell = plan.cells[0]
    finish(tmp_path, (cell,), lambda rate, seed: 0.5)
    lost = cell.lane_id(cell.lanes[0])
    (tmp_path / "lanes" / lost / "result.json").unlink()
    assert len(make_plan(searching(), tmp_path).choices) == 0
    assert make_plan(searching(), tmp_path, {lost}).choices[0].setting.learning_rate == 1e-2


def test_draws_are_log_uniform_and_the_same_for_everybody(tmp_path: Path) -> None:
    spec = searching(method="log_uniform", learning_rate=[1e-4, 1.0], warmup=[0, 10], trials=40)
    cell = make_plan(spec, tmp_path).cells[0]
    rates = sorted({lane.optimiser.learning_rate for lane in cell.lanes})
    assert len(rates) == 40
    assert all(1e-4 <= rate <= 1 for rate in rates)
    assert 12 <= sum(rate < 1e-2 for rate in rates) <= 28
    assert {lane.optimiser.warmup for lane in cell.lanes} <= set(range(11))
    assert make_plan(spec, tmp_path).cells == make_plan(spec, tmp_path).cells
    assert place("learning_rate", (1e-4, 1.0), 0.5) == pytest.approx(1e-2)


def test_tpe_goes_where_the_results_are(tmp_path: Path) -> None:
    spec = searching(method="tpe", learning_rate=[1e-4, 1.0], trials=24, objective="accuracy")
    plans = play(spec, tmp_path, lambda rate, seed: 1 - min(1.0, abs(rate - 0.2)))
    best = plans[-1].choices[0]
    assert best.tried == 24
    assert abs(best.setting.learning_rate - 0.2) < 0.1
    assert make_plan(spec, tmp_path).cells == plans[-1].cells, "the same from the records alone"


def test_halving_trains_the_best_longer_and_never_prunes_report_seeds(tmp_path: Path) -> None:
    spec = searching(method="log_uniform", learning_rate=[1e-4, 1.0], trials=9, halving=3)
    *_, last = play(spec, tmp_path, lambda rate, seed: rate)
    first_cell = [cell for cell in last.cells if cell.label.startswith("parity × GRU")]
    assert [(len(cell.lanes), cell.training.steps) for cell in first_cell] == [(18, 4), (6, 12), (3, 12)]
    kept = {lane.optimiser.learning_rate for lane in first_cell[1].lanes}
    assert kept == set(sorted({lane.optimiser.learning_rate for lane in first_cell[0].lanes})[-3:])
    assert most_lanes(spec) == (24, 3)
    assert rungs(16, 2, 1000) == [(16, 125), (8, 250), (4, 500), (2, 1000)]
    assert rungs(16, 0, 1000) == [(16, 1000)]


def test_a_rate_that_sweep_leaves_out_starts_in_the_middle() -> None:
    data = small(search={"seeds": 2, "method": "tpe", "learning_rate": [1e-4, 1.0]}, sweep__learning_rate=...)
    assert parse_spec(data, "").sweep.learning_rate == (1e-2,)
    with pytest.raises(SpecError, match=r"sweep.learning_rate: missing"):
        parse_spec(small(search={"seeds": 2}, sweep__learning_rate=...), "")


def test_the_rule_and_the_choice_are_in_the_record(tmp_path: Path) -> None:
    spec = searching()
    keeper = Keeper(spec, tmp_path, None, lambda text: None)
    keeper.start()
    while finish(tmp_path, tuple(keeper.cells()), lambda rate, seed: rate):
        pass
    assert len(collect(tmp_path)) == 6
    assert len(collect_selection(tmp_path)) == 8
    assert "on 2 selection seeds that are not reported" in (study_rule(tmp_path) or "")
    assert study_rule(tmp_path / "nowhere") is None
