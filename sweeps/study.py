"""The study's ledger in Optuna: which lanes wait, which are held by a worker, which are told or have failed.

Optuna is queue and ledger, not grid engine: every missing lane is enqueued once as a trial of its own; a worker
claims the waiting lanes of a cell, trains them as a population, and tells each. Records in the lanes' folders are
the truth; the ledger is brought into line with them at every start, and can be made anew from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell
from statelab.sweeps.lease import Leases, this_worker
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.sharing import shared
from statelab.sweeps.storage import Storage
from statelab.sweeps.trials import (
    LaneState,
    again,
    copy_of_record,
    lane_of,
    new_trial,
    states_of,
    tell_readers,
)  # fmt: skip


class Ledger:
    """The lanes of one study folder, as trials of one Optuna study in its journal file or in the database `url`.

    `lost` names lanes that the last `sync` found told, but without a record that can be read: they wait again.
    """

    def __init__(self, folder: Path, name: str, url: str | None = None) -> None:
        self._folder, self._name = folder, name
        self._at = Storage(folder, url)
        self._storage = self._at.optuna
        self.worker = this_worker()
        self.lost: list[str] = []
        with self._at.lock(name):
            self._study = optuna.create_study(
                study_name=name,
                storage=self._storage,
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(),
                pruner=optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
            self._id = self._storage.get_study_id_from_name(name)
            tell_readers(self._storage, self._id)
        attributes = partial(self._storage.get_study_user_attrs, self._id)
        self._leases = Leases(attributes, partial(self._storage.set_study_user_attr, self._id))

    def close(self) -> None:
        """Let go of a database's connections; nothing is lost by not doing so."""
        self._at.close()

    @property
    def rebuilt(self) -> bool:
        """Whether the journal could not be read and was set aside for a new one."""
        return self._at.rebuilt

    def sync(self, cells: Sequence[Cell], *, retry_failed: bool = False) -> int:
        """Bring the ledger into line with the spec and the records; return how many lanes wait.

        Lanes held by a dead worker go back to the queue, finished ones are told, missing ones enqueued once, and
        waiting ones that the spec no longer asks for are dropped. Lanes that have failed as often as they may
        stay so, unless `retry_failed`. Records that only the database has are written into the folder.
        """
        wanted = {cell.lane_id(lane): (cell, lane) for cell in cells for lane in cell.lanes}
        with self._at.lock(self._name):
            settled = set() if retry_failed else set(self.failed())
            waiting: set[str] = set()
            told: set[str] = set()
            tries: dict[str, int] = {}
            for trial in self._trials():
                lane_id = lane_of(trial)
                tries[lane_id] = int(trial.user_attrs.get("tries", 0))
                result = self._result(trial, lane_id in wanted)
                if trial.state == TrialState.COMPLETE:
                    (told if result is None else settled).add(lane_id)
                elif trial.state == TrialState.RUNNING and self._is_alive(trial):
                    settled.add(lane_id)
                elif trial.state == TrialState.FAIL:
                    continue
                elif trial.state == TrialState.WAITING and result is None and lane_id in wanted:
                    waiting.add(lane_id)
                else:
                    self._close(trial, None if lane_id in settled else _accuracy(result))
                    settled |= {lane_id} if result is not None else set()
            self.lost = sorted(told & wanted.keys() - settled - waiting)
            for lane_id in wanted.keys() - settled - waiting:
                tried = 0 if retry_failed else tries.get(lane_id, 0)
                waiting |= {lane_id} if self._add(*wanted[lane_id], lane_id, tried) else set()
        return len(waiting & wanted.keys())

    def claim(
        self,
        cells: Sequence[Cell],
        limit: int,
        together: Sequence[Collection[str]] = (),
        crew: int | None = None,
    ) -> tuple[Cell, tuple[Lane, ...]] | None:
        """Take up to `limit` waiting lanes of the first cell that has any, in the spec's order; None if none wait.

        Lanes of `together`, which share a checkpoint, are taken along with any of them. A lane that has failed
        before is taken alone and last, so that it fails no other with it. What dead workers held is given back
        first. With `crew`, how many workers there are or will be at least, this one takes its share of what is left
        instead (sweeps/sharing.py).
        """
        with self._at.lock(self._name):
            self._reap()
            waiting = self._waiting()
            fresh = {lane_id for lane_id, trial in waiting.items() if not trial.user_attrs.get("tries")}
            if crew is not None and (workers := max(crew, self.workers())) > 1:
                cells, limit = shared(cells, limit, fresh, self.states(), self._folder, workers)
            for queue, most in ((fresh, limit), (waiting.keys() - fresh, 1)):
                for cell in cells:
                    ids = [lane_id for lane in cell.lanes if (lane_id := cell.lane_id(lane)) in queue]
                    taken = set(ids[:most])
                    taken |= {i for group in together if taken & set(group) for i in ids if i in group}
                    here = [lane for lane in cell.lanes if self._taken(waiting, cell.lane_id(lane), taken)]
                    if here:
                        self.beat()
                        return cell, tuple(here)
        return None

    def cells_waiting(self, cells: Sequence[Cell]) -> int:
        """How many cells have a lane that waits."""
        waiting = self._waiting()
        return sum(any(cell.lane_id(lane) in waiting for lane in cell.lanes) for cell in cells)

    def tell(self, lane_id: str, accuracy: float) -> None:
        """Note that a lane of this worker's is finished, with its final accuracy as the trial's value."""
        with self._at.lock(self._name):
            for trial in self._mine(lane_id):
                if self._at.shared:
                    record = copy_of_record(LaneFolder(self._folder, lane_id))
                    self._storage.set_trial_user_attr(trial._trial_id, "record", record)
                self._close(trial, accuracy)

    def release(self, lane_ids: Iterable[str]) -> None:
        """Give unfinished lanes of this worker's back to the queue."""
        with self._at.lock(self._name):
            for lane_id in lane_ids:
                for trial in self._mine(lane_id):
                    self._give_back(trial)

    def fail(self, lane_ids: Iterable[str], error: str, retries: int) -> int:
        """Note that training lanes of this worker's raised an error; return how many will be tried again."""
        left = 0
        with self._at.lock(self._name):
            for trial in [trial for lane_id in lane_ids for trial in self._mine(lane_id)]:
                tries = int(trial.user_attrs.get("tries", 0)) + 1
                self._storage.set_trial_user_attr(trial._trial_id, "error", error)
                if tries > retries:
                    self._storage.set_trial_user_attr(trial._trial_id, "failed", tries)
                self._close(trial, None)
                if tries <= retries:
                    self._study.add_trial(again(trial, tries=tries))
                    left += 1
        return left

    def failed(self) -> dict[str, str]:
        """The lanes that have failed as often as they may, each with its last error."""
        return {lane_id: s.error for lane_id, s in self.states().items() if s.state == "failed"}

    def beat(self) -> None:
        """Renew this worker's lease on the lanes it holds."""
        self._leases.renew(self.worker)

    def workers(self) -> int:
        """How many workers live, this one included."""
        return len(self._leases.living() | {self.worker})

    def arrive(self) -> None:
        """Begin this worker's lease, so that the others leave it its share. Under the lock, as claims are."""
        with self._at.lock(self._name):
            self.beat()

    def leave(self) -> None:
        """End this worker's lease, so that the others share what is left without it."""
        with self._at.lock(self._name):
            self._leases.end(self.worker)

    def keep(self, name: str, value: Any) -> None:
        """Keep plain data with the study, for workers that share no folder with the launcher."""
        self._storage.set_study_user_attr(self._id, name, value)

    def counts(self, lane_ids: Iterable[str]) -> dict[str, int]:
        """How many of the given lanes are waiting and running."""
        wanted = set(lane_ids)
        states = [t.state for t in self._trials() if lane_of(t) in wanted and not t.state.is_finished()]
        return {"waiting": states.count(TrialState.WAITING), "running": states.count(TrialState.RUNNING)}

    def states(self) -> dict[str, LaneState]:
        """Where each lane stands, by its last trial; lanes that were dropped from the queue are left out."""
        return states_of(self._trials())

    def _add(self, cell: Cell, lane: Lane, lane_id: str, tries: int) -> bool:
        result = LaneFolder(self._folder, lane_id).result()
        self._study.add_trial(new_trial(cell, lane, lane_id, result, tries))
        return result is None

    def _reap(self) -> None:
        dead = [t for t in self._trials((TrialState.RUNNING,)) if not self._is_alive(t)]
        for trial in dead:
            result = self._result(trial, True)
            if result is None:
                self._give_back(trial)
            else:
                self._close(trial, _accuracy(result))

    def _give_back(self, trial: FrozenTrial) -> None:
        # Queued before it is closed, so that a worker killed between the two leaves a lane twice and not nowhere.
        if lane_of(trial) not in self._waiting():
            self._study.add_trial(again(trial))
        self._close(trial, None)

    def _taken(self, waiting: dict[str, FrozenTrial], lane_id: str, wanted: set[str]) -> bool:
        if lane_id not in wanted:
            return False
        trial = waiting[lane_id]
        if (result := self._result(trial, True)) is not None:
            self._close(trial, _accuracy(result))
            return False
        self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        self._storage.set_trial_user_attr(trial._trial_id, "worker", self.worker)
        return True

    def _result(self, trial: FrozenTrial, wanted: bool) -> dict[str, Any] | None:
        folder = LaneFolder(self._folder, lane_of(trial))
        result = folder.result()
        record = trial.user_attrs.get("record")
        if result is None and wanted and record is not None and trial.state == TrialState.COMPLETE:
            folder.start(record["spec"], record["curve"])
            folder.commit(record["result"])
            return folder.result()
        return result

    def _trials(self, states: tuple[TrialState, ...] | None = None) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._id, deepcopy=False, states=states)

    def _waiting(self) -> dict[str, FrozenTrial]:
        return {lane_of(trial): trial for trial in self._trials((TrialState.WAITING,))}

    def _mine(self, lane_id: str) -> list[FrozenTrial]:
        running = self._trials((TrialState.RUNNING,))
        return [t for t in running if lane_of(t) == lane_id and t.user_attrs.get("worker") == self.worker]

    def _close(self, trial: FrozenTrial, accuracy: float | None) -> None:
        if trial.state == TrialState.WAITING:
            self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        state = TrialState.FAIL if accuracy is None else TrialState.COMPLETE
        values = None if accuracy is None else [accuracy]
        self._storage.set_trial_state_values(trial._trial_id, state, values)

    def _is_alive(self, trial: FrozenTrial) -> bool:
        # Claims note their worker under the lock, so a running trial without one belongs to a worker that died.
        return self._leases.runs(str(trial.user_attrs.get("worker", "")))


def _accuracy(result: dict[str, Any] | None) -> float | None:
    return None if result is None else result["row"]["accuracy"]
