"""From a spec to what is trained: cells, their lanes, and each lane's id. Imports no torch."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, cast

from statelab.models.config import ModelConfig
from statelab.models.settings import Anneal, EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.sweeps.parts import TaskSpec
from statelab.sweeps.spec import Spec
from statelab.tasks.task import Task

FORMAT = 1
"""Part of every id: raised when the same settings come to mean another computation."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One (task setting, model) pair; all of its lanes share every shape.

    Lanes of a cell for `selection` only serve to choose the settings of those that are reported.
    """

    study: str
    task_label: str
    model_label: str
    task_name: str
    task: Task
    model: ModelConfig
    training: TrainingSettings
    evaluation: EvaluationSettings
    lanes: tuple[Lane, ...]
    threshold: float
    purpose: Literal["report", "selection"] = "report"

    @property
    def label(self) -> str:
        """How the cell is called in lines of progress."""
        choosing = " (choosing)" if self.purpose == "selection" else ""
        return f"{self.task_label} × {self.model_label}{choosing}"

    def science(self, lane: Lane) -> dict[str, Any]:
        """Every setting on which a lane's result depends, as plain data: names for display are left out."""
        return {
            "format": FORMAT,
            "task": {"task": self.task_name, **asdict(self.task)},
            "model": asdict(self.model),
            "training": asdict(self.training),
            "evaluation": asdict(self.evaluation),
            "optimiser": asdict(lane.optimiser),
            "seed": lane.seed,
        }

    def lane_id(self, lane: Lane) -> str:
        """Sixteen hex digits of a hash of the lane's settings: the same run has the same id anywhere."""
        text = json.dumps(self.science(lane), sort_keys=True, allow_nan=False, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def cells_of(spec: Spec) -> tuple[Cell, ...]:
    """The cells of a study, tasks outermost, in the order of the spec."""
    return tuple(
        Cell(
            study=spec.name,
            task_label=task.label,
            model_label=model.label,
            task_name=task.task,
            task=task.build(),
            model=model.build(),
            training=TrainingSettings(
                length=task.length, stages=task.stages(), anneal=_anneal(spec), **dict(spec.training)
            ),
            evaluation=_evaluation(spec, task),
            lanes=tuple(lanes_of(settings_listed(spec), spec.sweep.seeds)),
            threshold=spec.threshold,
        )
        for task, model in itertools.product(spec.tasks, spec.models)
    )


def _anneal(spec: Spec) -> Anneal | None:
    return None if spec.anneal is None else Anneal(**dict(spec.anneal))


def _evaluation(spec: Spec, task: TaskSpec) -> EvaluationSettings:
    asked = dict(spec.evaluation)
    metrics = tuple(dict.fromkeys((*task.build().metrics, *asked.pop("metrics"))))
    return EvaluationSettings(
        test_lengths=task.test_lengths, test_ranges=task.test_ranges, metrics=cast(Any, metrics), **asked
    )


def settings_listed(spec: Spec) -> tuple[OptimiserSettings, ...]:
    """Every combination of the optimiser's numbers that [sweep] lists."""
    names = [item.name for item in fields(OptimiserSettings)]
    combinations = itertools.product(*(getattr(spec.sweep, name) for name in names))
    return tuple(OptimiserSettings(**dict(zip(names, values, strict=True))) for values in combinations)


def lanes_of(settings: Iterable[OptimiserSettings], seeds: Sequence[int]) -> Iterator[Lane]:
    """A lane for each setting and seed, seeds innermost."""
    return (Lane(seed=seed, optimiser=optimiser) for optimiser in settings for seed in seeds)


def study_key(spec: Spec) -> str:
    """Six hex digits of what all results of a study depend on: its training and evaluation."""
    shared = {"format": FORMAT} | spec.model_dump(mode="json", include={"training", "evaluation", "anneal"})
    return hashlib.blake2b(json.dumps(shared, sort_keys=True).encode(), digest_size=3).hexdigest()
