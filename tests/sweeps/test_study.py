"""The ledger: every missing lane waits once, whatever was killed, lost or changed before."""

from __future__ import annotations

import json
import time
from pathlib import Path

import optuna
import pytest

from statelab.sweeps import lease
from statelab.sweeps.cells import Cell, cells_of
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.study import Ledger
from tests.sweeps.specs import small
from tests.sweeps.test_record import row


@pytest.fixture
def cells() -> tuple[Cell, ...]:
    return cells_of(parse_spec(small(), ""))


def ids(cells: tuple[Cell, ...]) -> list[str]:
    return [cell.lane_id(lane) for cell in cells for lane in cell.lanes]


def commit(folder: Path, lane_id: str) -> None:
    lane = LaneFolder(folder, lane_id)
    lane.start({})
    lane.commit({"row": row(accuracy=0.5), "lengths": []})


def states(folder: Path) -> list[str]:
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"))
    study = optuna.load_study(study_name="small", storage=optuna.storages.JournalStorage(backend))
    return sorted(trial.state.name for trial in study.trials)


def test_every_lane_is_enqueued_once(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    assert ledger.sync(cells) == 12
    assert ledger.sync(cells) == 12
    assert states(tmp_path) == ["WAITING"] * 12


def test_a_claim_takes_lanes_of_one_cell_in_order(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    first, second = ledger.claim(cells, 4), ledger.claim(cells, 4)
    assert first is not None
    assert second is not None
    assert first[0] is second[0] is cells[0]
    assert [*first[1], *second[1]] == list(cells[0].lanes)
    third = ledger.claim(cells, 99)
    assert third is not None
    assert third == (cells[1], cells[1].lanes)
    assert ledger.claim(cells, 4) is None


def test_told_lanes_are_complete_with_their_accuracy(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    ledger.claim(cells, 1)
    lane = ids(cells)[0]
    commit(tmp_path, lane)
    ledger.tell(lane, 0.75)
    assert ledger.sync(cells) == 11
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
    study = optuna.load_study(study_name="small", storage=optuna.storages.JournalStorage(backend))
    assert study.best_trial.value == 0.75
    assert study.best_trial.user_attrs["lane"] == lane
    assert study.best_trial.params == {"learning_rate": 3e-3, "seed": 0}


def test_released_lanes_wait_again(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    ledger.claim(cells, 3)
    ledger.release(ids(cells)[:3])
    assert ledger.counts(ids(cells)) == {"waiting": 12, "running": 0}
    claimed = ledger.claim(cells, 99)
    assert claimed == (cells[0], cells[0].lanes)


def test_lanes_of_a_dead_worker_wait_again(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    dead = Ledger(tmp_path, "small")
    dead.worker = dead.worker.rpartition(":")[0] + ":another start"
    dead.sync(cells)
    dead.claim(cells, 5)
    commit(tmp_path, ids(cells)[1])
    ledger = Ledger(tmp_path, "small")
    assert ledger.sync(cells) == 11
    assert states(tmp_path).count("COMPLETE") == 1


def test_lanes_of_a_living_worker_stay_its_own(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    living = Ledger(tmp_path, "small")
    living.sync(cells)
    living.claim(cells, 5)
    assert Ledger(tmp_path, "small").sync(cells) == 7


def test_another_hosts_lease_holds_until_it_runs_out(
    tmp_path: Path, cells: tuple[Cell, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Ledger(tmp_path, "small")
    far.worker = "elsewhere:1:1"
    far.sync(cells)
    far.claim(cells, 5)
    assert Ledger(tmp_path, "small").sync(cells) == 7
    import time

    later = time.time() + 1e4
    monkeypatch.setattr("time.time", lambda: later)
    assert Ledger(tmp_path, "small").sync(cells) == 12


def test_new_lanes_are_added_and_dropped_ones_leave(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    Ledger(tmp_path, "small").sync(cells)
    more = cells_of(parse_spec(small(sweep__seeds=4), ""))
    assert Ledger(tmp_path, "small").sync(more) == 16
    fewer = cells_of(parse_spec(small(sweep__seeds=1), ""))
    assert Ledger(tmp_path, "small").sync(fewer) == 4
    assert states(tmp_path).count("WAITING") == 4


def test_a_torn_last_line_is_cut(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    Ledger(tmp_path, "small").sync(cells)
    with (tmp_path / "journal.log").open("a") as file:
        file.write('{"op_code":4,"work')
    ledger = Ledger(tmp_path, "small")
    assert not ledger.rebuilt
    assert ledger.sync(cells) == 12


@pytest.mark.parametrize("content", ["garbage\nmore\n", '{"op_code": 99}\n', "[]\n" * 3, "{}\n"])
def test_a_ledger_is_made_anew_from_the_records(
    tmp_path: Path, cells: tuple[Cell, ...], content: str
) -> None:
    for lane in ids(cells)[:2]:
        commit(tmp_path, lane)
    (tmp_path / "journal.log").write_text(content)
    ledger = Ledger(tmp_path, "small")
    assert ledger.rebuilt
    assert ledger.sync(cells) == 10
    assert states(tmp_path) == ["COMPLETE"] * 2 + ["WAITING"] * 10
    (aside,) = tmp_path.glob("journal.log.unreadable-*")
    assert aside.read_text() == content


def test_a_record_that_was_deleted_is_run_again(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    ledger.claim(cells, 1)
    lane = ids(cells)[0]
    commit(tmp_path, lane)
    ledger.tell(lane, 0.5)
    (tmp_path / "lanes" / lane / "result.json").write_text(json.dumps("broken"))
    assert ledger.sync(cells) == 12


def test_a_running_worker_reaps_what_a_dead_one_held(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    dead = Ledger(tmp_path, "small")
    dead.worker = dead.worker.rpartition(":")[0] + ":another start"
    dead.sync(cells)
    dead.claim(cells, 99)
    dead.claim(cells, 99)
    commit(tmp_path, ids(cells)[0])
    ledger = Ledger(tmp_path, "small")
    assert ledger.claim(cells, 99) == (cells[0], cells[0].lanes[1:])
    assert ledger.claim(cells, 99) == (cells[1], cells[1].lanes)
    assert ledger.claim(cells, 99) is None
    assert states(tmp_path).count("COMPLETE") == 1


def test_lanes_of_one_checkpoint_are_claimed_together(tmp_path: Path, cells: tuple[Cell, ...]) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    claimed = ledger.claim(cells, 2, [ids(cells)[1:4]])
    assert claimed == (cells[0], cells[0].lanes[:4])


def test_a_worker_killed_while_it_gave_a_lane_back_neither_loses_nor_doubles_it(
    tmp_path: Path, cells: tuple[Cell, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path, "small")
    ledger.sync(cells)
    ledger.claim(cells, 1)
    monkeypatch.setattr(Ledger, "_close", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ledger.release(ids(cells)[:1])
    monkeypatch.undo()
    ledger.worker = "elsewhere:1:1"
    assert sorted(states(tmp_path)) == ["RUNNING"] + ["WAITING"] * 12
    other = Ledger(tmp_path, "small")
    monkeypatch.setattr("statelab.sweeps.lease.is_alive", lambda *args: False)
    assert other.claim(cells, 99) == (cells[0], cells[0].lanes)
    assert states(tmp_path).count("RUNNING") == 6


def test_a_line_torn_while_workers_run_is_cut_by_whoever_writes_next(
    tmp_path: Path, cells: tuple[Cell, ...]
) -> None:
    one, two = Ledger(tmp_path, "small"), Ledger(tmp_path, "small")
    one.sync(cells)
    with (tmp_path / "journal.log").open("a") as file:
        file.write('{"op_code":4,"work')
    assert two.claim(cells, 99) is not None
    assert one.claim(cells, 99) == (cells[1], cells[1].lanes)
    assert not Ledger(tmp_path, "small").rebuilt


def test_a_container_with_the_same_host_name_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = lease.this_worker()
    assert lease.is_alive(here, 0.0, 1.0)
    there = here.replace("/", "/0")
    assert lease.is_alive(there, 2.0, 1.0)
    assert not lease.is_alive(there, 0.0, 1.0)
    assert not lease.is_alive("", 2.0, 3.0)


def test_a_beat_that_fails_is_told_once_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.01)
    made: list[int] = []

    def beat() -> None:
        made.append(1)
        raise OSError("the database restarts")

    said: list[str] = []
    with lease.Heartbeat(beat, said.append):
        end = time.monotonic() + 20
        while len(made) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    assert len(made) >= 3
    assert len(said) == 1
