"""Initial values: those of the papers' code, and the size of the published model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.gated_delta import GatedDelta, GatedDeltaConfig
from statelab.models.gru import GRU, GRUConfig
from statelab.models.mamba2 import Mamba2, Mamba2Config
from statelab.models.mlstm import MLSTM, MLSTMConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def assert_uniform(drawn: Tensor, low: float, high: float) -> None:
    """In the range, and mean and spread within five standard errors of a uniform's."""
    values = drawn.detach()
    assert values.min() >= low - 1e-4
    assert values.max() <= high + 1e-4
    error = (high - low) / math.sqrt(12 * values.numel())
    assert abs(float(values.mean()) - (low + high) / 2) < 5 * error
    assert abs(float(values.std()) - (high - low) / math.sqrt(12)) < 5 * error


def assert_normal(drawn: Tensor, std: float) -> None:
    values = drawn.detach()
    assert abs(float(values.mean())) < 5 * std / math.sqrt(values.numel())
    assert float(values.std()) == pytest.approx(std, rel=5 / math.sqrt(2 * values.numel()))


def step_of(dt_bias: Tensor) -> Tensor:
    """Logarithm of the step that a bias stands for."""
    return torch.nn.functional.softplus(dt_bias.detach().double()).log()


def test_gru() -> None:
    layer = GRU(GRUConfig(heads=2), 64)
    for weight in (layer.weight, layer.reset_weight, layer.forget_weight):
        assert_normal(weight, 0.02)
    assert_uniform(layer.in_proj.weight, -1 / 8, 1 / 8)
    assert float(GRU(GRUConfig(init_std=0.5), 64).weight.detach().std()) == pytest.approx(0.5, rel=0.1)


def test_mamba2() -> None:
    layer = Mamba2(Mamba2Config(head_dim=1, d_state=2), 256, blocks=4)
    assert_uniform(layer.A_log.exp(), 1, 16)
    assert_uniform(step_of(layer.dt_bias), math.log(1e-3), math.log(0.1))
    assert torch.equal(layer.D, torch.ones(512))
    assert layer.conv.bias is not None
    assert_uniform(layer.conv.weight, -0.5, 0.5)
    assert_uniform(layer.out_proj.weight, -(512**-0.5) / 2, 512**-0.5 / 2)


def test_gated_delta() -> None:
    layer = GatedDelta(GatedDeltaConfig(heads=512, head_dim=1), 8)
    assert_uniform(layer.A_log.exp(), 0, 16)
    assert_uniform(step_of(layer.dt_bias), math.log(1e-3), math.log(0.1))
    assert layer.conv is not None
    assert layer.conv.bias is None
    assert_uniform(layer.conv.weight, -0.5, 0.5)


def test_mlstm() -> None:
    layer = MLSTM(MLSTMConfig(), 94, blocks=2)
    small = math.sqrt(2 / (5 * 94))
    for weight in (layer.up.weight, layer.q.weight, layer.k.weight, layer.v.weight):
        assert_normal(weight, small)
    assert_normal(layer.down.weight, 1 / math.sqrt(94))
    assert not layer.gates.weight.any()
    assert torch.equal(layer.gates.bias[4:], torch.tensor([3.0, 4.0, 5.0, 6.0]))
    drawn = torch.cat([MLSTM(MLSTMConfig(heads=64), 64).gates.bias[:64] for _ in range(8)])
    assert_normal(drawn, 0.1)
    assert layer.skip is not None
    assert torch.equal(layer.skip, torch.ones(192))
    assert torch.equal(layer.norm.weight, torch.ones(4, 48))


def count(options: dict[str, Any], width: int, vocab_size: int) -> int:
    layer = LayerConfig(mixer="mlstm", options=options)
    model = Backbone(ModelConfig(layers=(layer,), width=width), vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("read", ["plain", "orthogonal"])
def test_the_published_mlstm_has_its_published_size(read: str) -> None:
    """77,716 parameters at vocabulary 80 and 80,740 at 96: arXiv 2607.19390."""
    assert count({"read": read}, 94, 80) == 77_716
    assert count({"read": read}, 94, 96) == 80_740
