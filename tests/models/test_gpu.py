"""Populations on a graphics card: the same numbers as on the CPU, every mixer, every arithmetic."""

from __future__ import annotations

import pytest
import torch

from statelab.models.benchmark import baseline
from statelab.models.learner import Learner
from statelab.models.settings import Arithmetic, EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.sweeps.run import fit
from statelab.tasks.noisy_recall import NoisyRecall
from tests.models.training import LAYERS, lanes_of, learner_of, train

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", LAYERS)
def test_a_population_trains_on_the_card_as_on_the_cpu(name: str) -> None:
    there, here = learner_of(name, lanes_of(3)).cuda(), learner_of(name, lanes_of(3))
    assert torch.equal(there.batch(5).inputs.cpu(), here.batch(5).inputs)
    torch.testing.assert_close(train(there, 0, 20).cpu(), train(here, 0, 20), rtol=0, atol=1e-9)


@pytest.mark.parametrize("arithmetic", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("read", ["plain", "orthogonal"])
def test_losses_of_the_published_model_fall(read: str, arithmetic: Arithmetic) -> None:
    training = TrainingSettings(length=256, batch=16, steps=60, schedule="constant", arithmetic=arithmetic)
    lanes = [Lane(seed=seed, optimiser=OptimiserSettings(learning_rate=3e-3)) for seed in range(2)]
    learner = Learner(NoisyRecall(), baseline(read), lanes, training, EvaluationSettings(every=30, rows=64))
    fit(learner, torch.device("cuda"))
    first, last = learner.evaluations[0], learner.evaluations[-1]
    assert learner.alive_R.all()
    assert all(after < before for before, after in zip(first.train_loss, last.train_loss, strict=True))


def test_float32_products_are_not_tf32() -> None:
    def losses(arithmetic: Arithmetic) -> torch.Tensor:
        training = TrainingSettings(length=64, batch=16, steps=60, arithmetic=arithmetic)
        lanes = [Lane(seed=1, optimiser=OptimiserSettings(learning_rate=3e-3))]
        learner = Learner(NoisyRecall(), baseline(), lanes, training, EvaluationSettings()).cuda()
        return train(learner, 0, 3).double()

    exact = losses("float64")
    assert (losses("float32") - exact).abs().max() < 1e-5 < (losses("bf16") - exact).abs().max()
    assert (losses("float32") - exact).abs().max() < (losses("tf32") - exact).abs().max()
