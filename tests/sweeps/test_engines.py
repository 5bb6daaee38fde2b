"""Engines: the same study by submitit, by Ray, and by a pool whose workers are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from statelab.sweeps.engine import Crew, Engine, engine_of
from statelab.sweeps.errors import UserError
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.pool import Pool, WorkerFailed
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import collect
from statelab.sweeps.stop import StopSignals
from tests.sweeps.specs import small

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of 2 lanes that waits for workers."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "small"
    spec = parse_spec(small(sweep__seeds=1, sweep__learning_rate=1e-2), "")
    assert Keeper(spec, folder, None, lambda text: None).start() == 2
    return folder


def test_submitits_local_executor_runs_a_study(study: Path) -> None:
    pytest.importorskip("submitit", reason="needs submitit: pip install 'statelab[slurm]'")
    run = engine_of(Engine(kind="slurm", options={"cluster": "local", "timeout_min": 10}))
    run(Crew(study, 1, "cpu", 64), StopSignals())
    assert len(collect(study)) == 2
    assert (study / "slurm").stat().st_mode & 0o077 == 0


def test_a_worker_that_is_killed_is_replaced(study: Path) -> None:
    pool = Pool(Crew(study, 1, "cpu", 64), StopSignals())
    start = pool._start
    killed: list[int] = []

    def start_and_kill_the_first(index: int) -> object:
        worker = start(index)
        if not killed:
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)
        return worker

    pool._start = start_and_kill_the_first  # type: ignore[assignment, method-assign]
    pool.run()
    assert len(collect(study)) == 2


def test_a_worker_that_is_always_killed_is_given_up(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pool = Pool(Crew(study, 1, "cpu", 64), StopSignals())
    start = pool._start

    def start_and_kill(index: int) -> object:
        worker = start(index)
        os.kill(worker.pid, signal.SIGKILL)
        return worker

    pool._start = start_and_kill  # type: ignore[assignment, method-assign]
    with pytest.raises(WorkerFailed, match="was killed 6 times soon after its start"):
        pool.run()
    assert "worker 1 of 1 was killed (SIGKILL)" in capfd.readouterr().err


@pytest.mark.slow
def test_ray_goes_on_when_a_node_is_killed(study: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs ray: pip install 'statelab[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    spec = parse_spec(small(sweep__seeds=2, training__steps=400, evaluation__every=50), "")
    keeper = Keeper(spec, study, None, lambda text: None)
    waiting = keeper.start()
    try:
        ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.1")
        import threading

        def kill_the_node_that_trains() -> None:
            end = time.monotonic() + 120
            while keeper.ledger.counts(keeper.lane_ids())["running"] < waiting and time.monotonic() < end:
                time.sleep(0.2)
            cluster.remove_node(node, allow_graceful=False)

        killer = threading.Thread(target=kill_the_node_that_trains)
        killer.start()
        engine_of(Engine(kind="ray"))(Crew(study, 2, "cpu", 64), StopSignals())
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    keeper.cells()
    assert keeper.ledger.counts(keeper.lane_ids()) == {"waiting": 0, "running": 0}
    assert len(collect(study)) == waiting == 8


@pytest.mark.parametrize(
    ("engine", "answer"),
    [
        (Engine(kind="slrum"), "Did you mean 'slurm'"),
        (Engine(options={"gpus": 1}), "local engine has no option 'gpus'"),
        (Engine(kind="ray", options={"adress": "x"}), "unknown option 'adress'"),
    ],
)
def test_a_wrong_engine_is_answered(engine: Engine, answer: str) -> None:
    if engine.kind == "ray":
        pytest.importorskip("ray")
    with pytest.raises(UserError, match=answer):
        engine_of(engine)


def test_a_slurm_option_that_submitit_does_not_have_is_answered(study: Path) -> None:
    pytest.importorskip("submitit")
    run = engine_of(Engine(kind="slurm", options={"cluster": "local", "timeout_minutes": 10}))
    with pytest.raises(UserError, match="timeout_minutes"):
        run(Crew(study, 1, "cpu", 64), StopSignals())
