"""Training a population from Python, without a spec or a folder: for notebooks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from statelab.models.config import ModelConfig
from statelab.models.learner import Learner
from statelab.models.settings import EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.sweeps.cells import Cell
from statelab.sweeps.device import pick_device
from statelab.sweeps.progress import Progress
from statelab.sweeps.record import LANE_COLUMNS
from statelab.sweeps.results import count_solved, lane_row
from statelab.sweeps.run import fit
from statelab.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd

    from statelab.models.evaluation import Measurement


def train(
    task: Task,
    model: ModelConfig,
    training: TrainingSettings,
    *,
    learning_rates: Iterable[float] = (1e-3,),
    seeds: Iterable[int] = range(4),
    evaluation: EvaluationSettings | None = None,
    threshold: float = 0.9,
    device: str = "auto",
    **numbers: Any,
) -> tuple[pd.DataFrame, Learner]:
    """Train every rate with every seed as one population.

    Returns one row a lane, columns `record.LANE_COLUMNS`, and the trained Learner: its `evaluations` and `tests`
    have the curves, `population.lane_state(r)` the weights of lane r. `numbers` are other fields of
    OptimiserSettings, the same for all lanes. Raises ValueError for settings or sizes that cannot work.
    """
    import pandas as pd

    lanes = tuple(
        Lane(seed=seed, optimiser=OptimiserSettings(learning_rate=rate, **numbers))
        for rate, seed in itertools.product(learning_rates, list(seeds))
    )
    evaluation = evaluation or EvaluationSettings()
    for length in (training.length, *evaluation.test_lengths):
        task.check_length(length)
    name = type(task).__name__
    mixers = "+".join(dict.fromkeys(layer.mixer for layer in model.layers))
    cell = Cell(
        study="notebook", task_label=name, model_label=mixers, task_name=name, task=task, model=model,
        training=training, evaluation=evaluation, lanes=lanes, threshold=threshold,
    )  # fmt: skip
    learner = Learner(task, model, lanes, training, evaluation)
    progress = Progress(cell.label, len(lanes), training.steps)

    def evaluated(measurement: Measurement) -> None:
        progress.evaluated(count_solved(measurement, threshold), int((learner.diverged_at_R >= 0).sum()))

    fit(learner, pick_device(device), progress=progress, on_evaluation=evaluated)
    progress.close(learner.steps_done)
    rows = [{"id": cell.lane_id(lane), **lane_row(cell, learner, r)} for r, lane in enumerate(lanes)]
    return pd.DataFrame(rows, columns=list(LANE_COLUMNS)), learner
