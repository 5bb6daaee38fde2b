"""Engines: the same study by submitit, by Ray, and by a pool whose workers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statelab.sweeps.engine import Crew, Engine, engine_of
from statelab.sweeps.errors import UserError
from statelab.sweeps.job import RUN_AGAIN
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


def test_submitits_local_executor_runs_a_study_and_nothing_is_pickled(study: Path) -> None:
    pytest.importorskip("submitit", reason="needs submitit: pip install 'statelab[slurm]'")
    run = engine_of(Engine(kind="slurm", options={"cluster": "local", "timeout_min": 10}))
    run(Crew(study, 1, "cpu", 64), StopSignals())
    assert len(collect(study)) == 2
    assert (study / "slurm").stat().st_mode & 0o077 == 0
    written = [path.suffix for path in (study / "slurm").iterdir()]
    assert written
    assert ".pkl" not in written


def test_a_folder_that_others_can_write_to_is_refused(study: Path) -> None:
    pytest.importorskip("submitit", reason="needs submitit: pip install 'statelab[slurm]'")
    (study / "slurm").mkdir()
    (study / "slurm").chmod(0o770)
    run = engine_of(Engine(kind="slurm", options={"cluster": "local"}))
    with pytest.raises(UserError, match="can be written to by, others"):
        run(Crew(study, 1, "cpu", 64), StopSignals())


@pytest.mark.parametrize(
    ("signum", "worker", "code"),
    [
        (signal.SIGUSR2, "sys.exit(143)", RUN_AGAIN),
        (signal.SIGTERM, "sys.exit(143)", 143),
        (signal.SIGUSR2, "sys.exit(0)", 0),
    ],
    ids=["a time limit", "a cancelled job", "finished in time"],
)
def test_a_job_lets_its_worker_stop(signum: int, worker: str, code: int) -> None:
    """The worker is told by SIGTERM; a job whose time is over is run again, unless its worker has finished."""
    waiting = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: {worker})\n"
        "ignored = signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN\n"
        "print('ready' if ignored else 'would die', flush=True)\n"
        "time.sleep(60)"
    )
    job = subprocess.Popen(
        [sys.executable, "-m", "statelab.sweeps.job", sys.executable, "-c", waiting],
        cwd=ROOT, env=os.environ | {"SUBMITIT_EXECUTOR": "local"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stdout is not None
    with job.stdout:
        assert job.stdout.readline() == "ready\n"
        job.send_signal(signum)
        assert job.wait(30) == code


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


@pytest.mark.parametrize("option", [{"timeout_minutes": 10}, {"timeout_min": "soon"}], ids=["name", "value"])
def test_a_wrong_option_of_slurm_is_answered(study: Path, option: dict[str, object]) -> None:
    pytest.importorskip("submitit")
    run = engine_of(Engine(kind="slurm", options={"cluster": "local", **option}))
    with pytest.raises(UserError, match=next(iter(option))):
        run(Crew(study, 1, "cpu", 64), StopSignals())
