"""Memory told before the first step against what the first steps take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.execution import Execution
from statelab.models.learner import Learner
from statelab.models.memory import MEASURED, Memory, _at, _peak, free_bytes, predict
from statelab.models.settings import EvaluationSettings, TrainingSettings
from statelab.tasks.noisy_recall import NoisyRecall
from tests.models.test_learner import Counting
from tests.models.training import LAYERS, TASK, lanes_of

CPU = torch.device("cpu")
EVALUATION = EvaluationSettings(rows=16)


def learner_of(name: str, lanes: int, **settings: Any) -> Learner:
    model = ModelConfig(layers=(LAYERS[name],), width=16)
    training = TrainingSettings(**{"length": 24, "batch": 4, "steps": 8, **settings})
    return Learner(NoisyRecall(vocab=24, noise_vocab=8), model, lanes_of(lanes), training, EVALUATION)


def told(learner: Learner, device: torch.device = CPU) -> Memory:
    return predict(
        learner.task, learner.model_config, learner.training_settings, learner.evaluation_settings, device
    )


def taken(learner: Learner) -> int:
    """Bytes that a step takes at its peak beyond what there was before it, by the allocator's own account."""
    steps = learner.whole_steps(learner.configure_optimizers())
    rows = learner.rows(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        steps.make(rows, learner.seed_of_lane_R)
    now = peak = 0
    for event in found.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.parametrize("name", ["attention", "mlstm", "gated_delta"])
def test_a_step_takes_what_was_told(name: str) -> None:
    learner = learner_of(name, 3)
    assert taken(learner) == pytest.approx(3 * told(learner).step, rel=0.15)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - {"attention"}))
def test_shapes_alone_take_what_fake_tensors_do(name: str) -> None:
    learner = learner_of(name, 1)
    for trains in (True, False):
        of_meta, of_fakes = (
            _peak(learner, torch.device(kind), (1, 4, 26), trains=trains) for kind in ("meta", "cpu")
        )
        assert of_meta == of_fakes


def test_a_long_sequence_is_told_from_shorter_ones() -> None:
    learner = learner_of("attention", 1)
    long = 4 * MEASURED[-1]

    def measure(length: int) -> int:
        return _peak(learner, CPU, (1, 4, length), trains=True)

    assert _at(long, measure) == pytest.approx(measure(long), rel=0.02)
    assert _at(1000, lambda n: 3 * n * n + 5 * n + 7) == 3_005_007


def test_lanes_that_fit_are_those_whose_total_does() -> None:
    memory = Memory(state=10, step=100, evaluation=40, rows=5, fixed=50, apart=True)
    assert memory.total(3, 2) == 3 * 150 + 2 * 5 + 50
    assert memory.lanes_in(memory.total(7, 7)) == 7
    assert memory.lanes_in(memory.total(7, 7) - 1) == 6
    assert memory.lanes_in(0) == 1


def test_a_model_that_looks_at_values_is_not_told() -> None:
    layer = LayerConfig(mixer=f"{Counting.__module__}:Counting")
    model = ModelConfig(layers=(layer,), width=8)
    with pytest.raises(ValueError, match="cannot be told beforehand"):
        predict(TASK, model, TrainingSettings(length=9, batch=3), EVALUATION, CPU)


def test_free_memory_is_that_of_this_machine() -> None:
    free = free_bytes(CPU)
    assert free is None or 1 << 20 < free < 1 << 50


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "off"), [("attention", 0.4), ("mlstm", 0.25), ("gru", 0.25)])
def test_a_card_gives_what_was_told(name: str, off: float) -> None:
    settings: dict[str, Any] = {"length": 128, "batch": 32}
    card = torch.device("cuda")
    memory = told(learner_of(name, 1, **settings), card)
    learner = learner_of(name, 4, **settings).to(card)
    learner.execution = Execution(capture="off", compile="off")
    steps = learner.whole_steps(learner.configure_optimizers())
    steps.make(learner.rows(0), learner.seed_of_lane_R)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    steps.make(learner.rows(1), learner.seed_of_lane_R)
    assert torch.cuda.max_memory_allocated() - before == pytest.approx(4 * memory.step, rel=off)
