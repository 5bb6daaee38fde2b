"""A lane as an Optuna trial, with names that a person finds in optuna-dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from statelab.models.settings import Lane, OptimiserSettings
from statelab.sweeps.cells import Cell
from statelab.sweeps.record import LaneFolder

_DISTRIBUTIONS = {
    "learning_rate": FloatDistribution(1e-300, 1e300, log=True),
    "seed": IntDistribution(0, 2**32 - 1),
}
_OF_ONE_CLAIM = frozenset({"worker", "error", "failed", "record"})

_STATES = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "finished",
}


_TOLD = "a trial is"
_WHAT_A_TRIAL_IS = (
    "one training run: a model on a task with one seed and one setting of the optimiser; its value is its final "
    "accuracy at the training length"
)


class LaneState(NamedTuple):
    """A lane in the ledger: waiting, running, finished or failed; seconds since the epoch at which it began, ended.

    `worker` trains it or has trained it; empty where it was told from its record.
    """

    state: str
    began: float | None
    ended: float | None
    error: str
    worker: str = ""


def lane_of(trial: FrozenTrial) -> str:
    """The id of a trial's lane."""
    return str(trial.user_attrs.get("lane"))


def tell_readers(storage: BaseStorage, study_id: int) -> None:
    """Keep with the study what its trials and their values are, for whoever opens it elsewhere."""
    if _TOLD not in storage.get_study_user_attrs(study_id):
        # What Study.set_metric_names sets, which calls itself experimental.
        storage.set_study_system_attr(study_id, "study:metric_names", ["final accuracy"])
        storage.set_study_user_attr(study_id, _TOLD, _WHAT_A_TRIAL_IS)


def states_of(trials: Iterable[FrozenTrial]) -> dict[str, LaneState]:
    """Where each lane stands by its last trial; one that was only given back or dropped stands nowhere."""
    last = {lane_of(trial): trial for trial in trials}
    found = {lane_id: _state_of(trial) for lane_id, trial in last.items()}
    return {lane_id: state for lane_id, state in found.items() if state is not None}


def _state_of(trial: FrozenTrial) -> LaneState | None:
    state = _STATES.get(trial.state)
    if trial.state == TrialState.FAIL and "failed" in trial.user_attrs:
        state = "failed"
    if state is None:
        return None
    began, ended = (
        None if time is None else time.timestamp() for time in (trial.datetime_start, trial.datetime_complete)
    )
    attributes = trial.user_attrs
    error, worker = str(attributes.get("error", "unknown")), str(attributes.get("worker", ""))
    return LaneState(state, began, ended, error, worker)


def new_trial(
    cell: Cell, lane: Lane, lane_id: str, result: dict[str, Any] | None, tries: int = 0
) -> FrozenTrial:
    """A lane that waits or, with its result, one that is told; `tries` is how often it has failed before."""
    attributes = {
        "task": cell.task_label,
        "model": cell.model_label,
        "purpose": cell.purpose,
        "lane": lane_id,
    }
    usual = asdict(OptimiserSettings(learning_rate=lane.optimiser.learning_rate))
    unusual = {name: value for name, value in asdict(lane.optimiser).items() if value != usual[name]}
    return create_trial(
        state=TrialState.WAITING if result is None else TrialState.COMPLETE,
        value=None if result is None else result["row"]["accuracy"],
        params={"learning_rate": lane.optimiser.learning_rate, "seed": lane.seed},
        distributions=_DISTRIBUTIONS,
        user_attrs=attributes | unusual | ({"tries": tries} if tries else {}),
    )


def again(trial: FrozenTrial, **changes: Any) -> FrozenTrial:
    """The same lane, waiting again."""
    kept = {name: value for name, value in trial.user_attrs.items() if name not in _OF_ONE_CLAIM}
    return create_trial(
        state=TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs=kept | changes,
    )


def copy_of_record(lane: LaneFolder) -> dict[str, Any]:
    """A lane's whole record as plain data, for a storage that workers share who share no folder."""
    return {"spec": lane.spec(), "curve": lane.curve(), "result": lane.result()}
