"""mLSTM's plain block, written out, and its least-squares read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.causal_conv import causal_conv
from statelab.models.mlstm import MLSTM, MLSTMConfig
from tests.models.cases import leaves, stir
from tests.models.test_mixers_initial import assert_normal


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("conv", [0, 3])
def test_the_plain_block_step_by_step(conv: int) -> None:
    """o ⊙ norm(C q / max(|n q|, 1)) behind a projection: arXiv 2405.04517, eq. 19-27, without stabiliser."""
    layer = MLSTM(MLSTMConfig(block="plain", heads=2, conv=conv), 6).double()
    stir(layer)
    x = normal(2, 9, 6)
    y, _ = layer(x)
    seen = x if layer.conv is None else F.silu(causal_conv(x, layer.conv.weight, layer.conv.bias)[0])
    q, k, v = seen @ layer.q.weight[0].T, seen @ layer.k.weight[0].T, x @ layer.v.weight[0].T
    gates = torch.cat((q, k, v), dim=-1) @ layer.gates.weight.T + layer.gates.bias
    C, n = torch.zeros(2, 2, 3, 3, dtype=torch.float64), torch.zeros(2, 2, 3, dtype=torch.float64)
    for t in range(9):
        query, key, value = (part[:, t].view(2, 2, 3) for part in (q, k, v))
        add, keep = gates[:, t, :2].exp().unsqueeze(-1), torch.sigmoid(gates[:, t, 2:]).unsqueeze(-1)
        C = keep.unsqueeze(-1) * C + add.unsqueeze(-1) * value.unsqueeze(-1) * key.unsqueeze(-2) / 3**0.5
        n = keep * n + add * key / 3**0.5
        size = (n * query).sum(-1, keepdim=True).abs().clamp_min(1)
        h = F.layer_norm((C @ query.unsqueeze(-1)).squeeze(-1) / size, (3,)) * layer.norm.weight
        wanted = layer.down(h.flatten(1) * torch.sigmoid(layer.up(x[:, t])))
        torch.testing.assert_close(y[:, t], wanted, rtol=1e-3, atol=1e-4)


def test_blocks_among_zeros_project_as_blocks_do() -> None:
    """What is done on a card is what is done elsewhere: q, k, v, the gates, and every gradient."""
    layer = MLSTM(MLSTMConfig(heads=2, qkv_block=4), 10).double()
    stir(layer)
    u, c = normal(2, 5, 64).requires_grad_(), normal(2, 5, 64).requires_grad_()
    leaves = [u, c, *(part.weight for part in (layer.q, layer.k, layer.v, layer.gates))]
    made = [layer._project_blocks(u, c), layer._project_densely(u, c)]
    gradients = [torch.autograd.grad(sum((x * x.cos()).sum() for x in one), leaves) for one in made]  # type: ignore[arg-type]
    for one, other in zip((*made[0], *gradients[0]), (*made[1], *gradients[1]), strict=True):
        torch.testing.assert_close(one, other)


def test_the_plain_block_starts_as_xlstms_does() -> None:
    layer = MLSTM(MLSTMConfig(block="plain", heads=4), 64, blocks=2)
    for weight in (layer.up.weight, layer.q.weight, layer.k.weight, layer.v.weight):
        assert weight.shape[-2:] == (64, 64)
        assert_normal(weight, (2 / (5 * 64)) ** 0.5)
    assert_normal(layer.down.weight, 1 / 8)
    assert torch.equal(layer.gates.bias[4:], torch.tensor([3.0, 4.0, 5.0, 6.0]))
    assert layer.skip is None


def test_the_rls_read_carries_its_gram_matrix() -> None:
    layer = MLSTM(MLSTMConfig(block="plain", heads=2, conv=0, read="rls"), 6).double()
    x = normal(2, 20, 6)
    _, (_, memory) = layer(x)
    keys = F.normalize((x @ layer.k.weight[0].T).view(2, 20, 2, 3), dim=-1)
    torch.testing.assert_close(memory[3], torch.einsum("bthi,bthj->bhij", keys, keys))
    plain = MLSTM(MLSTMConfig(block="plain", heads=2, conv=0), 6).double()
    plain.load_state_dict(layer.state_dict())
    y, (_, other) = plain(x)
    for got, wanted in zip(leaves(memory), leaves(other), strict=False):
        torch.testing.assert_close(got, wanted)
    assert (layer(x)[0] - y).abs().max() > 1e-3
