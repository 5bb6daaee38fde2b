"""Workers started ahead: a pool takes them, and none is left where they are not taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statelab.sweeps import ahead, pool
from statelab.sweeps.ahead import Ahead, likely_crew
from statelab.sweeps.cells import cells_of
from statelab.sweeps.engine import Crew
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.lease import start_time
from statelab.sweeps.pool import Pool, crew_size, environment_of, visible_cards
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import collect
from statelab.sweeps.stop import StopSignals
from tests.sweeps.specs import small
from tests.sweeps.test_study import commit

ROOT = Path(__file__).resolve().parents[2]


def crew_of(folder: Path, count: int = 1) -> Crew:
    return Crew(folder / "small", count, "cpu", 64)


def until(found: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_a_pool_trains_with_what_was_started_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a study: its folder is made while they import."""
    spec = parse_spec(small(sweep__seeds=1, sweep__learning_rate=1e-2), "")
    with Ahead(crew_of(tmp_path, 2)) as begun:
        Keeper(spec, tmp_path / "small", None, lambda text: None).start()
        monkeypatch.setattr(pool, "subprocess", None)  # so that it can start no other
        Pool(crew_of(tmp_path, 2), StopSignals(), begun).run()
    assert len(collect(tmp_path / "small")) == 2


def test_what_nobody_takes_ends(tmp_path: Path) -> None:
    crew = crew_of(tmp_path, 2)
    with Ahead(crew) as begun:
        processes = [process for *_, process in begun._waiting]
        assert [process.poll() for process in processes] == [None, None]
        assert begun.take(crew.command("--no-wait"), environment_of(crew, 0)) is None
        assert begun.take(crew.command(), environment_of(crew_of(tmp_path, 3), 0)) is None
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_one_that_has_died_is_not_taken(tmp_path: Path) -> None:
    crew = crew_of(tmp_path)
    with Ahead(crew) as begun:
        ((*_, process),) = begun._waiting
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: start_time(process.pid) == "gone")
        assert begun.take(crew.command(), environment_of(crew, 0)) is None
    assert process.returncode == -signal.SIGKILL


def test_they_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from statelab.sweeps.ahead import Ahead\nfrom statelab.sweeps.engine import Crew\n"
        f"with Ahead(Crew(Path({str(tmp_path)!r}), 2, 'cpu', 64)) as begun:\n"
        "    print(*(process.pid for *_, process in begun._waiting), flush=True)\n    time.sleep(60)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    with launcher.stdout:
        pids = [int(word) for word in launcher.stdout.readline().split()]
        assert len(pids) == 2
        launcher.kill()
        launcher.wait()
    until(lambda: [start_time(pid) for pid in pids] == ["gone"] * 2)


@pytest.mark.parametrize(
    ("changes", "how", "cards", "count"),
    [
        ({}, {}, 0, 2),
        ({}, {"workers": 1}, 0, None),
        ({}, {"workers": 99}, 0, 12),
        ({}, {"device": "cuda"}, 0, None),
        ({}, {}, 1, None),
        ({}, {}, 8, 8),
        ({}, {"device": "cpu"}, 8, 2),
        ({"sweep__seeds": 1}, {}, 8, 4),
        ({"search": {"method": "grid", "seeds": 1}}, {"workers": 99}, 0, 2 * (2 + 3)),
    ],
)
def test_how_many_a_launcher_will_want(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    how: dict[str, Any],
    cards: int,
    count: int | None,
) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(ahead, "visible_cards", lambda: cards)
    asked: dict[str, Any] = {"device": "auto", "max_lanes": 64, "workers": 0, "url": None} | how
    crew = likely_crew(parse_spec(small(**changes), ""), tmp_path / "small", **asked)
    assert (None if crew is None else crew.count) == count
    if crew is not None:
        assert crew.device == ("cuda" if cards and asked["device"] != "cpu" else "cpu")


def test_a_launcher_wants_none_where_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(ahead, "visible_cards", lambda: 0)
    spec = parse_spec(small(), "")
    first, second = cells_of(spec)
    for cell, count in ((first, 6), (second, None)):
        for lane in cell.lanes:
            commit(tmp_path, cell.lane_id(lane))
        crew = likely_crew(spec, tmp_path, "auto", 64, 99, None)
        assert (None if crew is None else crew.count) == count


def test_cards_are_counted_and_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(tmp_path, 3, "cuda", 64)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert visible_cards() == 2
    assert [environment_of(crew, i, 2)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["4", "6", "4"]
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert visible_cards() == 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [environment_of(crew, i, 2)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("STATELAB_CREW", environment_of(crew, 0, 2)["STATELAB_CREW"])
    assert crew_size() == 3
