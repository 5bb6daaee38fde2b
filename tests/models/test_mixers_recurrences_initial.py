"""Initial values and sizes of RNN, M²RNN, Gated DeltaProduct and attention: those of papers and their code."""

from __future__ import annotations

import math

import pytest
import torch

from statelab.models.attention import Attention, AttentionConfig
from statelab.models.gated_delta_product import GatedDeltaProduct, GatedDeltaProductConfig
from statelab.models.m2rnn import M2RNN, M2RNNConfig
from statelab.models.rnn import RNN, RNNConfig
from tests.models.test_mixers_initial import assert_normal, assert_uniform, step_of


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_rnn() -> None:
    layer = RNN(RNNConfig(heads=2), 64)
    assert_normal(layer.weight, 0.02)
    assert_uniform(layer.in_proj.weight, -1 / 8, 1 / 8)
    assert layer.conv is not None
    assert layer.conv.bias is None
    assert_normal(RNN(RNNConfig(init_std=0.5), 64).weight, 0.5)


def test_m2rnn() -> None:
    layer = M2RNN(M2RNNConfig(heads=512, value_dim=2, key_dim=4), 16)
    assert torch.equal(layer.weight, torch.eye(2).expand(512, 2, 2))
    assert torch.equal(layer.D, torch.ones(512, 2))
    assert_uniform(layer.A_log.exp(), 0, 16)
    assert_uniform(step_of(layer.dt_bias), math.log(1e-3), math.log(0.1))
    assert layer.conv is not None
    assert layer.conv.bias is None
    assert not hasattr(layer.weight, "no_weight_decay")


def test_m2rnn_forgets_slowly_at_first() -> None:
    """f at a = 0 is e^(−A dt), A ~ U(0, 16), log dt uniform: from e^−1.6 = 0.2 to 1, in the middle about 0.93."""
    layer = M2RNN(M2RNNConfig(heads=4096, value_dim=1, key_dim=1), 2)
    f = torch.exp(-layer.A_log.exp() * torch.nn.functional.softplus(layer.dt_bias)).detach()
    assert f.min() > math.exp(-1.601)
    assert f.max() < 1
    drawn = torch.exp(-16 * torch.rand(100_000) * 10 ** (-1 - 2 * torch.rand(100_000)))
    assert float(f.median()) == pytest.approx(float(drawn.median()), abs=0.01)


def test_the_published_layers_have_their_published_states() -> None:
    """86,016 state values (84 heads of 64 × 16) against an RNN's 1,360 at width 1024: arXiv 2603.14360, Table 7."""
    layer = M2RNN(M2RNNConfig(heads=84, value_dim=16, conv=0), 1024)
    assert layer.state_size == 86_016
    assert RNN(RNNConfig(heads=85, head_dim=16, conv=0), 1024).state_size == 1_360
    # Appendix A: (2K + 3NV + N) d weights of projections; NV² of W; and the three vectors a head has.
    projections = layer.in_proj.weight.numel() + layer.out_proj.weight.numel()
    assert projections == (2 * 64 + 3 * 84 * 16 + 84) * 1024
    assert layer.weight.numel() == 84 * 16**2
    others = sum(p.numel() for p in layer.parameters()) - projections - layer.weight.numel()
    assert others == 2 * 84 + 84 * 16 + 84 * 16


def test_gated_delta_product() -> None:
    layer = GatedDeltaProduct(GatedDeltaProductConfig(heads=512, head_dim=1), 8)
    assert_uniform(layer.A_log.exp(), 0, 16)
    assert_uniform(step_of(layer.dt_bias), math.log(1e-3), math.log(0.1))
    assert layer.conv is not None
    assert layer.conv.bias is None
    assert_uniform(layer.conv.weight, -0.5, 0.5)


def test_attention() -> None:
    layer = Attention(AttentionConfig(), 64)
    assert_uniform(layer.in_proj.weight, -1 / 8, 1 / 8)
    assert_uniform(layer.out_proj.weight, -1 / 8, 1 / 8)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 64 * 64
