"""Whole steps, as they are captured and compiled, against gradients and update one after the other."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.models import steps as steps_module
from statelab.models.compiled import compile_step
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.execution import COMPILE_STEPS, Execution
from statelab.models.learner import Learner
from statelab.models.settings import Anneal, Lane, LengthStage, OptimiserSettings, TrainingSettings
from statelab.sweeps.run import fit, make_trainer
from tests.models.test_learner import Counting, Left
from tests.models.training import EVALUATION, TASK, TRAINING, lanes_of, learner_of, train

CPU = torch.device("cpu")
COMPILED = Execution(compile="on")
EAGER = Execution(compile="off")
ANNEALED = TrainingSettings(
    length=9, steps=20, batch=3, arithmetic="float64", anneal=Anneal(start=1, dwell=1, span=4)
)


@pytest.fixture
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile up to, and without, the writing of code, which takes minutes of a CPU."""
    monkeypatch.setattr(steps_module, "compile_step", partial(compile_step, backend="aot_eager"))


def wild_lanes() -> list[Lane]:
    """Three lanes, the second of which diverges."""
    lanes = lanes_of(3)
    wild = OptimiserSettings(learning_rate=1e200, clip=0.0)
    return [lanes[0], Lane(seed=lanes[1].seed, optimiser=wild), lanes[2]]


def train_whole(learner: Learner, start: int, stop: int, execution: Execution) -> tuple[Tensor, str]:
    """Losses [steps, R] of steps made as a whole, and the way in which the last one was."""
    learner.execution = execution
    steps = learner.whole_steps(learner.configure_optimizers())
    losses = [steps.make(learner.rows(n), learner.seed_of_lane_R).clone() for n in range(start, stop)]
    return torch.stack(losses), steps.way


def same_state(one: Learner, other: Learner) -> None:
    """That two learners hold the same numbers, bit for bit."""
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize("name", ["mlstm_orthogonal", "gru"])
def test_a_whole_step_is_gradients_then_update(name: str) -> None:
    parts, whole = (learner_of(name, wild_lanes(), training=ANNEALED) for _ in range(2))
    losses, way = train_whole(whole, 0, 8, EAGER)
    assert way == "eager"
    assert torch.equal(torch.nan_to_num(losses), torch.nan_to_num(train(parts, 0, 8)))
    assert whole.alive_R.tolist() == [True, False, True]
    same_state(parts, whole)


@pytest.mark.slow
def test_a_traced_step_is_the_step(quick_compiler: None) -> None:
    # As few operations as there can be with an annealed read: torch.compile takes milliseconds for each.
    options = {"heads": 1, "block": "plain", "conv": 0, "read": "orthogonal", "iterations": 1}
    model = ModelConfig(layers=(LayerConfig(mixer="mlstm", options=options),), width=4)
    short = replace(ANNEALED, length=2)
    eager, traced = (Learner(TASK, model, wild_lanes(), short, EVALUATION) for _ in range(2))
    losses, way = train_whole(traced, 0, 6, COMPILED)
    assert way == "compiled"
    expected, _ = train_whole(eager, 0, 6, EAGER)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert traced.diverged_at_R.tolist() == eager.diverged_at_R.tolist()
    torch.testing.assert_close(traced.population.flat, eager.population.flat, rtol=0, atol=1e-12)
    (blend,) = traced.population.stacked_buffers().values()
    # The sixth step has number 5: 5 − 1 − 1 of the 4 steps of the line have passed.
    assert blend.tolist() == [0.25] * 3


def test_a_compiled_run_is_checkpointed_resumed_and_evaluated_as_any(
    tmp_path: Path, quick_compiler: None
) -> None:
    def made(execution: Execution) -> Learner:
        layer = LayerConfig(mixer="tests.models.own_layers:Shift")
        learner = Learner(TASK, ModelConfig(layers=(layer,), width=8), lanes_of(2), TRAINING, EVALUATION)
        learner.execution = execution
        return learner

    whole, first, path = fit(made(EAGER), CPU), made(COMPILED), tmp_path / "lanes.ckpt"
    trainer = make_trainer(CPU, [])

    def save_then_leave(step: int) -> bool:
        if step == 11:
            trainer.save_checkpoint(path)
            raise Left
        return True

    first.on_step = save_then_leave
    with pytest.raises(Left):
        trainer.fit(first)
    resumed = fit(made(COMPILED), CPU, checkpoint=path)
    assert resumed.way == "compiled"
    torch.testing.assert_close(resumed.population.flat, whole.population.flat, rtol=0, atol=1e-12)
    assert [m.step for m in resumed.evaluations] == [m.step for m in whole.evaluations]
    assert [m.accuracy for m in resumed.evaluations] == [m.accuracy for m in whole.evaluations]


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so_once() -> None:
    layer = LayerConfig(mixer=f"{Counting.__module__}:Counting", options={"gain": 0.5})
    model = ModelConfig(layers=(layer,), width=8)
    eager, tried = (Learner(TASK, model, lanes_of(2), TRAINING, EVALUATION) for _ in range(2))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses, way = train_whole(tried, 0, 5, COMPILED)
    assert sum("cannot be compiled" in str(warning.message) for warning in said) == 1
    assert way == "eager"
    with pytest.warns(UserWarning, match="one after another"):
        assert torch.equal(losses, train(eager, 0, 5))


@pytest.mark.slow
def test_inductors_own_kernels_agree() -> None:
    model = ModelConfig(layers=(LayerConfig(mixer="tests.models.own_layers:Shift"),), width=8)
    eager, compiled = (Learner(TASK, model, lanes_of(3), TRAINING, EVALUATION) for _ in range(2))
    losses, way = train_whole(compiled, 0, 6, COMPILED)
    assert way == "compiled"
    torch.testing.assert_close(losses, train_whole(eager, 0, 6, EAGER)[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(compiled.population.flat, eager.population.flat, rtol=0, atol=1e-12)


def test_auto_compiles_long_trainings_of_one_length_on_a_card() -> None:
    def compiles(device: str = "cuda", done: int = 0, **settings: Any) -> bool:
        settings = {"length": 9, "steps": COMPILE_STEPS, **settings}
        return Execution().compiles(TrainingSettings(**settings), done, device)

    assert compiles()
    assert not compiles(device="cpu")
    assert not compiles(done=1)
    assert not compiles(stages=(LengthStage(between=(3, 40)),))
    assert compiles(stages=(LengthStage(among=(8, 16)),))
    assert Execution(compile="on").compiles(TRAINING, 0, "cpu")


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATELAB_COMPILE", "on")
    assert Execution.from_environment() == Execution(compile="on")
    monkeypatch.setenv("STATELAB_CAPTURE", "of")
    with pytest.raises(ValueError, match="STATELAB_CAPTURE is 'of'; use auto, on, off"):
        Execution.from_environment()
