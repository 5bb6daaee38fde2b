"""The study's ledger in Optuna: which lanes wait, which are held by a worker, which are told.

Optuna is queue and ledger, not grid engine: every missing lane is enqueued once as a trial of its own; a worker
claims the waiting lanes of a cell, trains them as a population, and tells each. Records in the lanes' folders are
the truth; the ledger is brought into line with them at every start, and can be made anew from them.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell
from statelab.sweeps.journal import held, open_journal
from statelab.sweeps.record import LaneFolder

LEASE_SECONDS = 120.0
BEAT_SECONDS = 30.0
_DISTRIBUTIONS = {
    "learning_rate": FloatDistribution(1e-12, 1e6, log=True),
    "seed": IntDistribution(0, 2**32 - 1),
}


class Ledger:
    """The lanes of one study folder, as trials of one Optuna study in its journal file."""

    def __init__(self, folder: Path, name: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock_path = folder / "ledger.flock"
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{_start_time(os.getpid())}"
        with self._held():
            self._storage, self.rebuilt = _open(folder)
            self._study = optuna.create_study(
                study_name=name,
                storage=self._storage,
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(),
                pruner=optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
        self._id = self._storage.get_study_id_from_name(name)

    def _held(self) -> AbstractContextManager[None]:
        return held(self._lock_path)

    def sync(self, cells: Sequence[Cell]) -> int:
        """Bring the ledger into line with the spec and the records; return how many lanes wait.

        Lanes held by a dead worker go back to the queue, finished ones are told, missing ones enqueued once, and
        waiting ones that the spec no longer asks for are dropped.
        """
        wanted = {cell.lane_id(lane): (cell, lane) for cell in cells for lane in cell.lanes}
        with self._held():
            told, waiting = set(), set()
            for trial in self._trials():
                lane_id = str(trial.user_attrs.get("lane"))
                result = LaneFolder(self._folder, lane_id).result()
                if (trial.state == TrialState.COMPLETE and result is not None) or (
                    trial.state == TrialState.RUNNING and self._is_alive(trial)
                ):
                    told.add(lane_id)
                elif trial.state == TrialState.WAITING and result is None and lane_id in wanted:
                    waiting.add(lane_id)
                elif not trial.state.is_finished():
                    self._close(trial, None if result is None else result["row"]["accuracy"])
                    told |= {lane_id} if result is not None else set()
            for lane_id, (cell, lane) in wanted.items():
                if lane_id not in told | waiting:
                    result = LaneFolder(self._folder, lane_id).result()
                    self._study.add_trial(_trial(cell, lane, lane_id, result))
                    waiting |= {lane_id} if result is None else set()
        return len(waiting)

    def claim(self, cells: Sequence[Cell], limit: int) -> tuple[Cell, tuple[Lane, ...]] | None:
        """Take up to `limit` waiting lanes of the first cell that has any, in the spec's order; None if none wait."""
        with self._held():
            waiting = {
                str(trial.user_attrs.get("lane")): trial for trial in self._trials((TrialState.WAITING,))
            }
            for cell in cells:
                here = [lane for lane in cell.lanes if cell.lane_id(lane) in waiting][:limit]
                for lane in here:
                    trial = waiting[cell.lane_id(lane)]
                    self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
                    self._storage.set_trial_user_attr(trial._trial_id, "worker", self.worker)
                if here:
                    self.beat()
                    return cell, tuple(here)
        return None

    def cells_waiting(self, cells: Sequence[Cell]) -> int:
        """How many cells have a lane that waits."""
        waiting = {trial.user_attrs.get("lane") for trial in self._trials((TrialState.WAITING,))}
        return sum(any(cell.lane_id(lane) in waiting for lane in cell.lanes) for cell in cells)

    def tell(self, lane_id: str, accuracy: float) -> None:
        """Note that a lane of this worker's is finished, with its final accuracy as the trial's value."""
        for trial in self._mine(lane_id):
            self._close(trial, accuracy)

    def release(self, lane_ids: Iterable[str]) -> None:
        """Give unfinished lanes of this worker's back to the queue."""
        with self._held():
            for lane_id in lane_ids:
                for trial in self._mine(lane_id):
                    self._close(trial, None)
                    again = create_trial(
                        state=TrialState.WAITING,
                        params=trial.params,
                        distributions=trial.distributions,
                        user_attrs={k: v for k, v in trial.user_attrs.items() if k != "worker"},
                    )
                    self._study.add_trial(again)

    def beat(self) -> None:
        """Renew this worker's lease on the lanes it holds."""
        self._storage.set_study_user_attr(self._id, f"lease {self.worker}", time.time() + LEASE_SECONDS)

    def counts(self, lane_ids: Iterable[str]) -> dict[str, int]:
        """How many of the given lanes are waiting and running."""
        wanted = set(lane_ids)
        states = [
            t.state
            for t in self._trials()
            if t.user_attrs.get("lane") in wanted and not t.state.is_finished()
        ]
        return {
            "waiting": states.count(TrialState.WAITING),
            "running": states.count(TrialState.RUNNING),
        }

    def _trials(self, states: tuple[TrialState, ...] | None = None) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._id, deepcopy=False, states=states)

    def _mine(self, lane_id: str) -> list[FrozenTrial]:
        running = self._trials((TrialState.RUNNING,))
        return [
            t
            for t in running
            if t.user_attrs.get("lane") == lane_id and t.user_attrs.get("worker") == self.worker
        ]

    def _close(self, trial: FrozenTrial, accuracy: float | None) -> None:
        if trial.state == TrialState.WAITING:
            self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        state = TrialState.FAIL if accuracy is None else TrialState.COMPLETE
        values = None if accuracy is None else [accuracy]
        self._storage.set_trial_state_values(trial._trial_id, state, values)

    def _is_alive(self, trial: FrozenTrial) -> bool:
        # Claims note their worker under the lock, so a running trial without one belongs to a worker that died.
        worker = str(trial.user_attrs.get("worker", ""))
        host, pid, started = [*worker.rsplit(":", 2), "", ""][:3]
        if host == socket.gethostname():
            return pid.isdigit() and _start_time(int(pid)) == started
        lease = self._storage.get_study_user_attrs(self._id).get(f"lease {worker}", 0.0)
        return bool(float(lease) > time.time())


class Heartbeat:
    """Renews a ledger's lease in the background for the duration of a block."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self._ledger.beat()


def _open(folder: Path) -> tuple[optuna.storages.JournalStorage, bool]:
    """The folder's journal, or a new one beside a copy of one that cannot be read; and whether it is new so."""
    path = folder / "journal.log"
    try:
        return open_journal(path), False
    except OSError:
        raise
    except Exception:  # Optuna fails in many ways on lines that are not its own.
        path.replace(folder / f"journal.log.unreadable-{int(time.time())}")
        return open_journal(path), True


def _trial(cell: Cell, lane: Lane, lane_id: str, result: dict[str, Any] | None) -> FrozenTrial:
    return create_trial(
        state=TrialState.WAITING if result is None else TrialState.COMPLETE,
        value=None if result is None else result["row"]["accuracy"],
        params={"learning_rate": lane.optimiser.learning_rate, "seed": lane.seed},
        distributions=_DISTRIBUTIONS,
        user_attrs={"lane": lane_id, "task": cell.task_label, "model": cell.model_label},
    )


def _start_time(pid: int) -> str:
    """When a process of this host started, in clock ticks: a number used again by another process differs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _alive_without_proc(pid)
    state_and_more = text.rpartition(")")[2].split()
    return "gone" if state_and_more[0] == "Z" else state_and_more[19]


def _alive_without_proc(pid: int) -> str:
    if Path("/proc").is_dir():
        return "gone"
    try:
        os.kill(pid, 0)
    except OSError:
        return "gone"
    return "alive"
