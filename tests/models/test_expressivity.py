"""What a recurrence can learn to do and what it cannot, by training it on CPU: small populations, fixed seeds.

Every lane of a population ends at `SOLVED` or above, or every one below `NOT_SOLVED`. All have one layer of width 32,
a cosine to 0, and accuracy over 256 rows of the training length. Rates are 1e-2 with seeds 1, 2, 3 (slow: 1 to 4)
or, marked *, 3e-3 and 1e-2 with seeds 1, 2. Batches are 32, but 64 for the GRU on S3. `SOLVES` and `DOES_NOT` have
the options. Measured are the worst lane of a "yes" and the best of a "no", and seconds of one thread of a busy
machine, with torch 2.13.

| task, length | layer | steps | solves | measured | s |
|---|---|---|---|---|---|
| running parity, 16 | GRU (slow) | 300 | yes | 1.000 | 8 |
| | Gated DeltaNet [-1,1] | 300 | yes | 1.000 | 6 |
| | Mamba-3, dt from 0.5 to 2 at first | 400 | yes | 1.000 | 14 |
| | Mamba-2 * | 300 | no | 0.684 | 8 |
| | Gated DeltaNet [0,1] * | 300 | no | 0.667 | 8 |
| | Mamba-3 without rotation, dt up to 0.1 at first (slow) | 300 | no | 0.591 | 9 |
| | Mamba-3 without rotation, dt from 0.5 to 2 at first | 400 | no | 0.635 | 11 |
| S3, 8 | GRU | 400 | yes | 0.9995 | 8 |
| | Gated DeltaProduct n_h = 2 | 400 | yes | 0.999 | 8 |
| | Gated DeltaProduct n_h = 1 | 400 | no | 0.564 | 8 |
| MQAR, 16 tokens, 3 of 7 keys | mLSTM * (3e-3: slow) | 400 | yes | 1.000 | 20 |
| | attention with a convolution * | 400 | yes | 1.000 | 9 |
| | attention without * | 400 | no | 0.379 | 8 |
| running parity, lengths 2–6, then 2–16 (slow) | Mamba-3, dt up to 0.1 at first | 1200 | yes | 1.000 | 31 |
| | the same without rotation | 1200 | no | 0.619 | 26 |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.learner import Learner
from statelab.models.settings import (
    EvaluationSettings,
    Lane,
    LengthStage,
    OptimiserSettings,
    TrainingSettings,
)
from statelab.sweeps.run import fit
from statelab.tasks.group_word import GroupWord
from statelab.tasks.mqar import MQAR
from statelab.tasks.parity import Parity
from statelab.tasks.task import Task

SOLVED = 0.99
NOT_SOLVED = 0.9


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A population with one lane for each rate and seed."""

    task: Task
    length: int
    mixer: str
    options: dict[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = (1e-2,)
    seeds: tuple[int, ...] = (1, 2, 3)
    steps: int = 300
    batch: int = 32
    stages: tuple[LengthStage, ...] = ()

    def train(self) -> list[float]:
        """Final accuracy of each lane, rates outermost."""
        lanes = [
            Lane(seed=seed, optimiser=OptimiserSettings(learning_rate=rate))
            for rate in self.rates
            for seed in self.seeds
        ]
        model = ModelConfig(layers=(LayerConfig(mixer=self.mixer, options=self.options),), width=32)
        training = TrainingSettings(
            length=self.length, stages=self.stages, steps=self.steps, batch=self.batch
        )
        evaluation = EvaluationSettings(every=self.steps, rows=256)
        learner = fit(Learner(self.task, model, lanes, training, evaluation), torch.device("cpu"))
        return learner.evaluations[-1].accuracy


parity = partial(Cell, task=Parity(answer="running"), length=16)
negative = partial(parity, rates=(3e-3, 1e-2), seeds=(1, 2))
s3 = partial(Cell, task=GroupWord(group="S3"), length=8, steps=400)
recall = partial(Cell, task=MQAR(vocab=16, pairs=3), length=16, steps=400, rates=(3e-3, 1e-2), seeds=(1, 2))
delta = {"heads": 2, "conv": 0, "expand_v": 1.0}
product = {"heads": 4, "conv": 0, "expand_v": 1.0, "gate": False, "forget_gate": False}
ssm = {"head_dim": 16, "d_state": 16}
wide_steps = {"step_min": 0.5, "step_max": 2.0}

SOLVES = {
    "parity-gru": parity(mixer="gru", options={"conv": 0}),
    "parity-gated_delta[-1,1]": parity(mixer="gated_delta", options=delta | {"eigenvalues": "[-1,1]"}),
    "parity-mamba3-wide_steps": parity(mixer="mamba3", options=ssm | wide_steps, steps=400),
    "s3-gru": s3(mixer="gru", options={"conv": 0}, batch=64),
    "s3-delta_product-n_h=2": s3(mixer="gated_delta_product", options=product | {"n_h": 2}),
    "recall-mlstm": recall(mixer="mlstm", options={"heads": 2}, rates=(1e-2,)),
    "recall-mlstm-3e-3": recall(mixer="mlstm", options={"heads": 2}, rates=(3e-3,)),
    "recall-attention-conv": recall(mixer="attention", options={"heads": 2, "conv": 4}),
}
DOES_NOT = {
    "parity-mamba2": negative(mixer="mamba2", options=ssm),
    "parity-gated_delta[0,1]": negative(mixer="gated_delta", options=delta | {"eigenvalues": "[0,1]"}),
    "parity-mamba3-no_rotation": parity(mixer="mamba3", options=ssm | {"rotation": "none"}),
    "parity-mamba3-no_rotation-wide_steps": parity(
        mixer="mamba3", options=ssm | wide_steps | {"rotation": "none"}, steps=400
    ),
    "s3-delta_product-n_h=1": s3(mixer="gated_delta_product", options=product | {"n_h": 1}),
    "recall-attention-no_conv": recall(mixer="attention", options={"heads": 2}),
}


def quick(names: Iterable[str], *but: str) -> list[Any]:
    """The names as parameters, but for some whose claim another one makes too: they are `slow`."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in but else name for name in names]


@pytest.mark.parametrize("name", quick(SOLVES, "parity-gru", "recall-mlstm-3e-3"))
def test_solves(name: str) -> None:
    accuracy = SOLVES[name].train()
    assert min(accuracy) >= SOLVED, accuracy


@pytest.mark.parametrize("name", quick(DOES_NOT, "parity-mamba3-no_rotation"))
def test_does_not_solve(name: str) -> None:
    accuracy = DOES_NOT[name].train()
    assert max(accuracy) < NOT_SOLVED, accuracy


@pytest.mark.slow
@pytest.mark.parametrize("rotation", ["data", "none"])
def test_mamba3_solves_parity_from_its_own_steps_if_it_turns(rotation: str) -> None:
    """Steps start at 0.1 or less and a phase at 0.1 π or less: a half turn must be grown, and lengths grow with it."""
    stages = (LengthStage(until=600, between=(2, 6)), LengthStage(between=(2, 16)))
    options = ssm | {"rotation": rotation}
    cell = parity(mixer="mamba3", options=options, seeds=(1, 2, 3, 4), steps=1200, stages=stages)
    accuracy = cell.train()
    assert min(accuracy) >= SOLVED if rotation == "data" else max(accuracy) < NOT_SOLVED, accuracy
