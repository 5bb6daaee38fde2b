"""A population's lanes against the same runs alone, through training, evaluation and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from statelab.models.checkpoint import load_checkpoint, save_checkpoint, select_lanes
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.learner import Learner
from statelab.models.settings import EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.sweeps.run import fit, make_trainer
from statelab.tasks.rows import Rows
from tests.models.training import EVALUATION, LAYERS, TASK, TRAINING, lanes_of, learner_of, train, train_alone

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", LAYERS)
def test_lane_r_of_8_equals_the_lone_run_r(name: str) -> None:
    lanes = lanes_of(8)
    together = learner_of(name, lanes)
    first = together.batch(3)
    losses = train(together, 0, 20)
    for index in (0, 3, 7):
        alone = learner_of(name, [lanes[index]])
        assert torch.equal(alone.batch(3).inputs[0], first.inputs[index])
        start = learner_of(name, lanes).population.flat[index]
        assert torch.equal(alone.population.flat[0], start)
        alone_losses = train(alone, 0, 20)
        torch.testing.assert_close(losses[:, index], alone_losses[:, 0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_a_lane_equals_a_plain_torch_loop(name: str) -> None:
    lanes = lanes_of(3)
    learner = learner_of(name, lanes)
    losses = train(learner, 0, 20)
    for index in (1, 2):
        alone, model = train_alone(name, lanes[index])
        torch.testing.assert_close(losses[:, index].tolist(), alone, rtol=0, atol=1e-10)
        trained = learner.population.lane_state(index)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(trained[key], value, rtol=0, atol=1e-9)


def test_two_lanes_of_one_seed_start_alike_and_part_by_the_rate() -> None:
    fast, slow = (OptimiserSettings(learning_rate=rate) for rate in (1e-2, 1e-3))
    learner = learner_of("gru", [Lane(seed=5, optimiser=fast), Lane(seed=5, optimiser=slow)])
    assert torch.equal(learner.population.flat[0], learner.population.flat[1])
    losses = train(learner, 0, 5)
    assert torch.equal(losses[0, 0], losses[0, 1])
    assert (losses[1:, 0] != losses[1:, 1]).all()


class Left(Exception):
    """Training is left in the middle."""


@pytest.mark.parametrize("stop_at", [8, 11, 19, 20])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, stop_at: int) -> None:
    lanes = lanes_of(3)
    whole = fit(learner_of("gated_delta", lanes), CPU)

    cut = learner_of("gated_delta", lanes)
    trainer = make_trainer(CPU, [])
    path = tmp_path / "lanes.ckpt"

    def save_then_leave(step: int) -> bool:
        if step == stop_at:
            trainer.save_checkpoint(path)
            raise Left
        return True

    cut.on_step = save_then_leave
    with pytest.raises(Left):
        trainer.fit(cut)
    resumed = fit(learner_of("gated_delta", lanes), CPU, checkpoint=path)

    assert torch.equal(whole.population.flat, resumed.population.flat)
    assert [m.plain() for m in whole.tests] == [m.plain() for m in resumed.tests]
    # At 8 the checkpoint stands between the last step of a chunk and its evaluation, which is made up for.
    assert [m.plain() for m in whole.evaluations] == [m.plain() for m in resumed.evaluations]


def test_evaluations_and_tests_are_where_they_were_asked_for() -> None:
    learner = fit(learner_of("gru", lanes_of(2)), CPU)
    assert [m.step for m in learner.evaluations] == [8, 16, 20]
    assert [(m.step, m.length) for m in learner.tests] == [(20, 5), (20, 13)]
    assert all(0 <= a <= 1 for m in learner.evaluations for a in m.accuracy)


def test_evaluation_rows_are_shared_or_each_seeds_own() -> None:
    lanes = [Lane(seed=s, optimiser=OptimiserSettings(learning_rate=1e-9)) for s in (1, 1, 2)]
    own = EvaluationSettings(every=8, rows=50, per_seed=True)
    accuracy = fit(learner_of("gru", lanes, evaluation=own), CPU).evaluations[0].loss
    assert accuracy[0] == accuracy[1] != accuracy[2]


def test_a_diverging_lane_is_frozen_and_no_other_sees_it() -> None:
    fine = [OptimiserSettings(learning_rate=1e-3), OptimiserSettings(learning_rate=2e-3)]
    wild = OptimiserSettings(learning_rate=1e200, clip=0.0)
    lanes = [Lane(seed=1, optimiser=fine[0]), Lane(seed=2, optimiser=wild), Lane(seed=3, optimiser=fine[1])]
    calm = [*lanes[:1], Lane(seed=2, optimiser=fine[0]), *lanes[2:]]
    learner, other = learner_of("gru", lanes), learner_of("gru", calm)
    losses, others = train(learner, 0, 12), train(other, 0, 12)
    assert learner.alive_R.tolist() == [True, False, True]
    assert learner.diverged_at_R.tolist()[1] > 0
    assert torch.isfinite(learner.population.flat).all()
    assert torch.equal(losses[:, [0, 2]], others[:, [0, 2]])


def test_some_lanes_of_a_checkpoint_go_on_as_they_would_have(tmp_path: Path) -> None:
    lanes = lanes_of(4)
    path, part = tmp_path / "all.ckpt", tmp_path / "part.ckpt"
    learner = learner_of("mamba2", lanes)
    learner.lane_ids = list("abcd")
    trainer = make_trainer(CPU, [])

    def save(step: int) -> bool:
        if step == 9:
            trainer.save_checkpoint(path)
        return True

    learner.on_step = save
    trainer.fit(learner)
    save_checkpoint(select_lanes(load_checkpoint(path), [1, 3]), part)
    resumed = learner_of("mamba2", [lanes[1], lanes[3]])
    fit(resumed, CPU, checkpoint=part)
    assert resumed.lane_ids == ["b", "d"]
    torch.testing.assert_close(resumed.population.flat, learner.population.flat[[1, 3]], rtol=0, atol=1e-10)
    for mine, all_lanes in zip(resumed.evaluations, learner.evaluations, strict=True):
        torch.testing.assert_close(mine.loss, [all_lanes.loss[1], all_lanes.loss[3]], rtol=0, atol=1e-10)


def test_arithmetic_that_a_device_lacks_is_refused() -> None:
    training = TrainingSettings(length=9, arithmetic="tf32")
    learner = learner_of("gru", lanes_of(1), training=training)
    with pytest.raises(ValueError, match="tf32"):
        learner.configure_optimizers()


def test_bf16_trains_with_float32_weights() -> None:
    training = TrainingSettings(length=9, batch=16, arithmetic="bf16")
    learner = learner_of("gru", lanes_of(2), training=training)
    losses = train(learner, 0, 40)
    assert learner.population.flat.dtype == torch.float32
    exact = train(learner_of("gru", lanes_of(2), training=TrainingSettings(length=9, batch=16)), 0, 40)
    assert not torch.equal(losses[0], exact[0])
    torch.testing.assert_close(losses, exact, rtol=0, atol=0.05)


class Counting(torch.nn.Module):
    """A layer whose data-dependent control flow vmap cannot lift."""

    def __init__(self, width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.gain = gain

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        y_BTD: torch.Tensor = self.linear(x_BTD) * self.gain
        return y_BTD if float(y_BTD.detach().sum()) > 0 else -y_BTD


def test_what_vmap_cannot_lift_runs_lane_by_lane_and_says_so() -> None:
    layer = LayerConfig(mixer="tests.models.test_learner:Counting", options={"gain": 0.5})
    model = ModelConfig(layers=(layer,), width=8)
    lanes = lanes_of(3)
    learner = Learner(TASK, model, lanes, TRAINING, EVALUATION)
    with pytest.warns(UserWarning, match="one after another"):
        losses = train(learner, 0, 3)
    alone = Learner(TASK, model, lanes[1:2], TRAINING, EVALUATION)
    with pytest.warns(UserWarning, match="one after another"):
        torch.testing.assert_close(train(alone, 0, 3)[:, 0], losses[:, 1], rtol=0, atol=1e-10)


def test_rows_made_for_several_steps_at_once_are_each_steps_own() -> None:
    learner = learner_of("gru", lanes_of(3))
    ahead = [learner.batch(step).inputs.clone() for step in range(20)]
    for step in (19, 0, 7):
        assert torch.equal(learner_of("gru", lanes_of(3)).batch(step).inputs, ahead[step])
        rows = Rows.span([lane.seed for lane in learner.lanes], "train", step * 3, 3)
        assert torch.equal(TASK.sample(rows, 9).inputs, ahead[step])
