"""What a mixer's options promise: eigenvalues in their range, switched-off parts gone, paper's equations."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.models.conv import CausalConv
from statelab.models.gated_delta import GatedDelta, GatedDeltaConfig
from statelab.models.gru import GRU, GRUConfig
from statelab.models.mamba2 import Mamba2, Mamba2Config
from statelab.models.mlstm import MLSTM, MLSTMConfig
from statelab.models.norm import LayerNorm, RMSNorm


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def transitions(eigenvalues: Literal["[0,1]", "[-1,1]"]) -> Tensor:
    """Eigenvalues `[inputs, heads, K]` of what one step does to the state, from outside."""
    config = GatedDeltaConfig(heads=2, conv=0, expand_v=1.0, eigenvalues=eigenvalues)
    layer = GatedDelta(config, 8).double()
    x = 4 * normal(300, 1, 8)
    identity = torch.eye(4, dtype=torch.float64).expand(300, 2, 4, 4)
    _, (_, moved) = layer(x, ((), identity))
    _, (_, added) = layer(x)
    values: Tensor = torch.linalg.eigvalsh(moved - added)
    return values


def test_eigenvalues_lie_between_0_and_1() -> None:
    values = transitions("[0,1]")
    assert values.min() > 0
    assert values.max() < 1


def test_doubled_beta_takes_eigenvalues_between_minus_1_and_1() -> None:
    values = transitions("[-1,1]")
    assert -1 < values.min() < -0.5
    assert values.max() < 1
    assert (values < 0).sum(dim=-1).max() == 1


def test_gru_without_extras_is_the_plain_recurrence() -> None:
    layer = GRU(GRUConfig(conv=0, gate=False, norm="none", init_std=0.5), 6).double()
    x, h = normal(2, 9, 6), torch.zeros(2, 6, dtype=torch.float64)
    y, (conv_state, last) = layer(x)
    for t in range(9):
        candidate, reset, forget = layer.in_proj(x[:, t]).chunk(3, dim=-1)
        r = torch.sigmoid(h @ layer.reset_weight[0] + reset)
        f = torch.sigmoid(h @ layer.forget_weight[0] + forget)
        h = f * h + (1 - f) * torch.tanh((h * r) @ layer.weight[0] + candidate)
        torch.testing.assert_close(y[:, t], layer.out_proj(h))
    assert conv_state == ()
    torch.testing.assert_close(last[:, 0], h)


def test_mamba2_step_by_step() -> None:
    """The layer as its paper and code write a step, from one input to the next."""
    layer = Mamba2(Mamba2Config(head_dim=4, d_state=3), 6).double()
    x = normal(2, 7, 6)
    y, (_, last) = layer(x)
    h = torch.zeros(2, 3, 4, 3, dtype=torch.float64)
    z, mixed, dt = layer.in_proj(x).split((12, 18, 3), dim=-1)
    weight = layer.conv.weight.T.unsqueeze(1)
    mixed = F.silu(F.conv1d(F.pad(mixed.transpose(1, 2), (3, 0)), weight, layer.conv.bias, groups=18))
    for t in range(7):
        value, write, read = mixed[:, :, t].split((12, 3, 3), dim=-1)
        step = F.softplus(dt[:, t] + layer.dt_bias)
        decay = torch.exp(-step * layer.A_log.exp())
        value = value.view(2, 3, 4)
        h = decay[..., None, None] * h + torch.einsum("bh,bhp,bn->bhpn", step, value, write)
        out = torch.einsum("bhpn,bn->bhp", h, read) + layer.D[:, None] * value
        gated = out.flatten(1) * F.silu(z[:, t])
        normed = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + 1e-5)
        torch.testing.assert_close(y[:, t], layer.out_proj(normed * layer.norm.weight.flatten()))
    torch.testing.assert_close(last, h)


def test_mlstm_reads_differ_in_the_numerator_alone() -> None:
    """The memory that the two reads leave behind is the same, and the plain one's read is its own."""
    torch.manual_seed(1)
    plain = MLSTM(MLSTMConfig(heads=2), 6).double()
    torch.manual_seed(1)
    orthogonal = MLSTM(MLSTMConfig(heads=2, read="orthogonal"), 6).double()
    x = normal(2, 20, 6)
    (one, (_, kept)), (other, (_, same)) = plain(x), orthogonal(x)
    assert (one - other).abs().max() > 1e-3
    for left, right in zip(kept, same, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize(("width", "expand", "inner"), [(94, 2.0, 192), (32, 2.0, 64), (33, 2.0, 128)])
def test_mlstm_inner_width_is_rounded_up_to_64(width: int, expand: float, inner: int) -> None:
    assert MLSTMConfig(expand=expand).inner(width) == inner


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_conv_is_torchs_padded_on_the_left(bias: bool) -> None:
    conv = CausalConv(5, 3, bias=bias).double()
    x = normal(2, 9, 5)
    padded = F.pad(x.transpose(1, 2), (2, 0))
    wanted = F.conv1d(padded, conv.weight.T.unsqueeze(1), conv.bias, groups=5).transpose(1, 2)
    y, state = conv(x)
    torch.testing.assert_close(y, wanted)
    assert torch.equal(state, x[:, -2:])


def test_norms_are_torchs_on_each_head() -> None:
    x = normal(2, 9, 3, 5)
    layer, rms = LayerNorm(3, 5).double(), RMSNorm(3, 5).double()
    with torch.no_grad():
        layer.weight.normal_()
        rms.weight.normal_()
    torch.testing.assert_close(layer(x), F.layer_norm(x, (5,)) * layer.weight)
    torch.testing.assert_close(rms(x), F.rms_norm(x, (5,), eps=1e-5) * rms.weight)
