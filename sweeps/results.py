"""A trained population's lanes as the rows that are recorded."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

import statelab
from statelab.models.evaluation import Measurement
from statelab.models.learner import Learner
from statelab.models.metrics import scaled_accuracy
from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell


def curve_point(measurement: Measurement, lane: int) -> dict[str, Any]:
    """One lane's line in its curve."""
    return {
        "step": measurement.step,
        "train_loss": measurement.train_loss[lane],
        "loss": measurement.loss[lane],
        "accuracy": measurement.accuracy[lane],
    }


def lane_result(cell: Cell, learner: Learner, index: int) -> dict[str, Any]:
    """What `result.json` holds: the lane's row, its accuracy at each test length, and how it was run."""
    return {
        "row": lane_row(cell, learner, index),
        "lengths": [_test(cell, test, index) for test in learner.tests if test.shortest is None],
        "ranges": [
            {"shortest": test.shortest, **_test(cell, test, index)}
            for test in learner.tests
            if test.shortest is not None
        ],
        "run": {
            "population": len(learner.lanes),
            "steps": learner.way,
            "torch": torch.__version__,
            "statelab": statelab.__version__,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }


def _test(cell: Cell, test: Measurement, index: int) -> dict[str, Any]:
    accuracy = test.accuracy[index]
    return {
        "length": test.length,
        "accuracy": accuracy,
        "scaled_accuracy": scaled_accuracy(accuracy, cell.task.num_answers),
        "loss": test.loss[index],
        "metrics": {name: lanes[index] for name, lanes in test.metrics.items()},
    }


def lane_row(cell: Cell, learner: Learner, index: int) -> dict[str, Any]:
    """One lane as a row of the study's table, columns record.LANE_COLUMNS."""
    lane, last = learner.lanes[index], learner.evaluations[-1]
    diverged_at = int(learner.diverged_at_R[index])
    training = asdict(cell.training)
    return {
        "study": cell.study,
        "task": cell.task_label,
        "model": cell.model_label,
        "seed": lane.seed,
        **asdict(lane.optimiser),
        **{name: training[name] for name in ("schedule", "steps", "batch", "arithmetic", "length")},
        "threshold": cell.threshold,
        "status": "finished" if diverged_at < 0 else "diverged",
        "diverged_at": None if diverged_at < 0 else diverged_at,
        "accuracy": last.accuracy[index],
        "scaled_accuracy": scaled_accuracy(last.accuracy[index], cell.task.num_answers),
        "loss": last.loss[index],
        "escape_step": escape_step(learner.evaluations, index, cell.threshold),
        "parameters": learner.population.parameters_per_lane,
        "state_size": getattr(learner.population.template, "state_size", None),
        "seconds": learner.seconds / len(learner.lanes),
        "device": device_name(learner.trained_on),
    }


def escape_step(evaluations: list[Measurement], index: int, threshold: float) -> int | None:
    """The first evaluated step at which a lane's accuracy was at or above the threshold."""
    return next((m.step for m in evaluations if m.accuracy[index] >= threshold), None)


def device_name(device: torch.device) -> str:
    """`cpu`, or the graphics card's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def count_solved(measurement: Measurement, threshold: float) -> int:
    """How many lanes are at or above the threshold at an evaluation."""
    return sum(accuracy >= threshold for accuracy in measurement.accuracy)


def lane_spec(cell: Cell, lane: Lane) -> dict[str, Any]:
    """What `spec.json` holds: the settings behind the lane's id, and the names it goes by."""
    labels = {"study": cell.study, "task_label": cell.task_label, "model_label": cell.model_label}
    return labels | {"purpose": cell.purpose} | cell.science(lane)
