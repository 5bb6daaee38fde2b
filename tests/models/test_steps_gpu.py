"""Captured and compiled steps on a graphics card, against eager ones."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from statelab.models.benchmark import baseline
from statelab.models.captured import refusing_to_wait
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.execution import Execution
from statelab.models.learner import Learner
from statelab.models.settings import (
    Anneal,
    EvaluationSettings,
    LengthStage,
    TrainingSettings,
)
from statelab.sweeps.run import fit, make_trainer
from statelab.tasks.noisy_recall import NoisyRecall
from tests.models.test_learner import Counting, Left
from tests.models.test_steps import train_whole, wild_lanes
from tests.models.training import EVALUATION, LAYERS, TASK, TRAINING, lanes_of, learner_of

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
CAPTURED = Execution(capture="on", compile="off")
EAGER = Execution(capture="off", compile="off")
BOTH = Execution(capture="on", compile="on")


def published(read: str = "plain", **changes: Any) -> Learner:
    """The published model at a small size, float32."""
    settings = {"length": 32, "batch": 4, "steps": 40, **changes}
    evaluation = EvaluationSettings(every=16, rows=16)
    return Learner(NoisyRecall(), baseline(read), lanes_of(3), TrainingSettings(**settings), evaluation)


def both_ways(
    make: Callable[[], Learner], steps: int = 20, execution: Execution = CAPTURED, atol: float = 1e-10
) -> Learner:
    """Train in two ways, compare losses and state; the learner trained by `execution`."""
    eager, other = make().cuda(), make().cuda()
    expected, way = train_whole(eager, 0, steps, EAGER)
    assert way == "eager"
    losses, way = train_whole(other, 0, steps, execution)
    assert way == ("compiled and captured" if execution.compile == "on" else "captured")
    torch.testing.assert_close(losses, expected, rtol=0, atol=atol, equal_nan=True)
    torch.testing.assert_close(other.population.flat, eager.population.flat, rtol=0, atol=10 * atol)
    torch.testing.assert_close(other.train_loss_R, eager.train_loss_R, rtol=0, atol=steps * atol)
    assert other.alive_R.tolist() == eager.alive_R.tolist()
    assert other.diverged_at_R.tolist() == eager.diverged_at_R.tolist()
    return other


@pytest.mark.parametrize("name", LAYERS)
def test_captured_steps_are_the_eager_ones_through_warm_up_and_cosine(name: str) -> None:
    both_ways(lambda: learner_of(name, lanes_of(3)))


def test_float32_agrees_to_rounding() -> None:
    both_ways(published, atol=1e-5)


@pytest.mark.parametrize("arithmetic", ["tf32", "bf16"])
def test_other_arithmetic_is_captured_too(arithmetic: str) -> None:
    both_ways(lambda: published(arithmetic=arithmetic), steps=8, atol=1e-3)


def test_a_lane_that_diverges_after_the_capture_is_frozen_and_no_other_sees_it() -> None:
    learner = both_ways(lambda: learner_of("gru", wild_lanes()))
    assert learner.alive_R.tolist() == [True, False, True]
    assert torch.isfinite(learner.population.flat).all()


def test_the_blend_of_an_annealed_read_moves_in_the_graph() -> None:
    anneal = Anneal(start=4, dwell=2, span=8)
    training = TrainingSettings(length=9, steps=20, batch=3, arithmetic="float64", anneal=anneal)
    learner = both_ways(lambda: learner_of("mlstm_orthogonal", lanes_of(2), training=training), steps=12)
    (blend,) = learner.population.stacked_buffers().values()
    assert blend.tolist() == [1 - 5 / 8] * 2


def test_each_length_of_a_mixture_has_its_graph() -> None:
    stages = (LengthStage(until=10, among=(5, 9)), LengthStage(among=(13, 9)))
    training = TrainingSettings(length=9, stages=stages, steps=40, batch=3, arithmetic="float64")
    both_ways(lambda: learner_of("gated_delta", lanes_of(3), training=training), steps=40)


@pytest.mark.parametrize(("read", "length"), [("plain", 32), ("orthogonal", 512)])
def test_compiled_and_captured_agrees_to_rounding(read: str, length: int) -> None:
    """At the published length too: how scans are compiled depends on theirs."""
    both_ways(partial(published, read, length=length), steps=10, execution=BOTH, atol=1e-5)


def test_evaluations_see_what_captured_steps_have_made() -> None:
    runs = {}
    for execution in (EAGER, CAPTURED):
        learner = published()
        learner.execution = execution
        runs[execution.capture] = fit(learner, CUDA)
    captured, eager = runs["on"], runs["off"]
    assert (captured.way, eager.way) == ("captured", "eager")
    assert (captured.trained_on, captured.device.type) == (CUDA, "cpu")
    assert [m.step for m in captured.evaluations] == [16, 32, 40]
    for one, other in zip(captured.evaluations, eager.evaluations, strict=True):
        torch.testing.assert_close(one.loss, other.loss, rtol=0, atol=1e-4)
        torch.testing.assert_close(one.train_loss, other.train_loss, rtol=0, atol=1e-4)


@pytest.mark.parametrize("stop_at", [1, 8, 11])
def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path, stop_at: int) -> None:
    whole = fit(learner_of("gated_delta", lanes_of(3)), CUDA)
    path = tmp_path / "lanes.ckpt"
    cut = learner_of("gated_delta", lanes_of(3))
    trainer = make_trainer(CUDA, [])

    def save_then_leave(step: int) -> bool:
        if step == stop_at:
            trainer.save_checkpoint(path)
            raise Left
        return True

    cut.on_step = save_then_leave
    with pytest.raises(Left):
        trainer.fit(cut)
    resumed = fit(learner_of("gated_delta", lanes_of(3)), CUDA, checkpoint=path)
    assert resumed.way == "captured"
    torch.testing.assert_close(resumed.population.flat, whole.population.flat, rtol=0, atol=1e-10)
    for one, other in zip(resumed.evaluations, whole.evaluations, strict=True):
        torch.testing.assert_close(one.loss, other.loss, rtol=0, atol=1e-9)


@pytest.mark.parametrize("task", ["parity", "noisy_recall", "mixture"])
def test_nothing_waits_for_the_device_between_evaluations(task: str) -> None:
    stages = (LengthStage(among=(5, 9)),) if task == "mixture" else ()
    training = TrainingSettings(length=9, stages=stages, steps=200, batch=3)
    short = learner_of("gru", lanes_of(3), training=training)
    learner = (published(steps=200) if task == "noisy_recall" else short).cuda()
    learner.execution = CAPTURED
    steps = learner.whole_steps(learner.configure_optimizers())
    for step in range(40):
        steps.make(learner.rows(step), learner.seed_of_lane_R)
    assert steps.way == "captured"
    with refusing_to_wait():
        for step in range(40, 160):
            steps.make(learner.rows(step), learner.seed_of_lane_R)
    assert torch.isfinite(learner.train_loss_R).all()


def test_what_waits_for_the_device_is_told_once_and_runs_eagerly() -> None:
    layer = LayerConfig(mixer=f"{Counting.__module__}:Counting", options={"gain": 0.5})
    model = ModelConfig(layers=(layer,), width=8)
    learner = Learner(TASK, model, lanes_of(2), TRAINING, EVALUATION).cuda()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses, way = train_whole(learner, 0, 8, CAPTURED)
    assert way == "eager"
    assert sum("cannot be captured" in str(warning.message) for warning in said) == 1
    other = Learner(TASK, model, lanes_of(2), TRAINING, EVALUATION).cuda()
    with pytest.warns(UserWarning, match="one after another"):
        torch.testing.assert_close(losses, train_whole(other, 0, 8, EAGER)[0], rtol=0, atol=1e-10)


def test_an_exact_polar_read_that_cannot_be_captured_trains() -> None:
    options = {"heads": 2, "read": "orthogonal", "factor": "polar"}
    model = ModelConfig(layers=(LayerConfig(mixer="mlstm", options=options),), width=8)
    learner = Learner(TASK, model, lanes_of(2), TRAINING, EVALUATION).cuda()
    with pytest.warns(UserWarning, match="cannot be captured"):
        losses, _ = train_whole(learner, 0, 6, CAPTURED)
    assert torch.isfinite(losses).all()


def test_a_finished_population_leaves_the_card_to_the_next() -> None:
    def reserved() -> int:
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    before = reserved()
    torch.cuda.reset_peak_memory_stats()
    learner = published(length=256, batch=32, steps=8)
    fit(learner, CUDA)
    assert learner.way == "captured"
    assert torch.cuda.max_memory_reserved() - before > 256 * 2**20
    assert reserved() - before < 128 * 2**20
