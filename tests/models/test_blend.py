"""The part of the orthogonal read, set from outside in a model and, lane by lane, in a population."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.models.backbone import Backbone
from statelab.models.blend import blend_buffers, set_blend
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.population import Population


def model(seed: int = 0, **options: Any) -> Backbone:
    torch.manual_seed(seed)
    layers = (LayerConfig(mixer="mlstm", options=options), LayerConfig(mixer="gru"))
    return Backbone(ModelConfig(layers=layers, width=8), vocab_size=5)


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(1))


def test_a_blend_of_0_is_the_model_that_reads_plainly() -> None:
    orthogonal, plain = model(read="orthogonal"), model()
    x = tokens(3, 12)
    assert (orthogonal(x)[0] - plain(x)[0]).abs().max() > 1e-3
    set_blend(orthogonal, 0.0)
    torch.testing.assert_close(orthogonal(x)[0], plain(x)[0])


def test_it_starts_as_the_config_says_and_is_kept_with_the_weights() -> None:
    net = model(read="orthogonal", blend=0.5)
    assert [buffer.item() for buffer in blend_buffers(net)] == [0.5]
    other = model(read="orthogonal")
    other.load_state_dict(net.state_dict())
    assert [buffer.item() for buffer in blend_buffers(other)] == [0.5]


def test_each_lane_of_a_population_has_its_own() -> None:
    population = Population(lambda: model(read="orthogonal"), [0, 0, 0])
    x = tokens(4, 12)
    set_blend(population, torch.tensor([0.0, 0.4, 1.0]))
    together = population(x.expand(3, 4, 12))
    alone = model(read="orthogonal")
    alone.load_state_dict(population.lane_state(1))
    for lane, alpha in enumerate((0.0, 0.4, 1.0)):
        set_blend(alone, alpha)
        torch.testing.assert_close(together[lane], alone(x)[0])
    assert population.lane_state(1)["layers.0.mixer.blend"].item() == pytest.approx(0.4)


def test_the_blend_is_not_trained() -> None:
    net = model(read="orthogonal", blend=0.5)
    net(tokens(3, 12))[0].square().sum().backward()
    assert "layers.0.mixer.blend" not in dict(net.named_parameters())
    (buffer,) = blend_buffers(net)
    assert buffer.grad is None


def test_a_model_without_an_orthogonal_read_is_refused() -> None:
    with pytest.raises(ValueError, match="Backbone has no orthogonal read; give an mlstm layer read ="):
        set_blend(model(), 0.5)
