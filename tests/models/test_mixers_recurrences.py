"""RNN, M²RNN, Gated DeltaProduct and attention: their layers as papers and official code write them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.rnn import rnn
from statelab.models.attention import Attention, AttentionConfig, rotate
from statelab.models.gated_delta import GatedDelta, GatedDeltaConfig
from statelab.models.gated_delta_product import GatedDeltaProduct, GatedDeltaProductConfig
from statelab.models.m2rnn import M2RNN, M2RNNConfig
from statelab.models.norm import RMSNorm
from statelab.models.rnn import RNN, RNNConfig


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def convolved(x_BTC: Tensor, weight_JC: Tensor) -> Tensor:
    taps, channels = weight_JC.shape
    padded = F.pad(x_BTC.transpose(1, 2), (taps - 1, 0))
    return F.silu(F.conv1d(padded, weight_JC.T.unsqueeze(1), groups=channels)).transpose(1, 2)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_rnn_without_extras_is_torchs_without_biases() -> None:
    layer = RNN(RNNConfig(conv=0, gate=False, norm="none", init_std=0.5), 6).double()
    torchs = torch.nn.RNN(6, 6, bias=False, batch_first=True, dtype=torch.float64)
    weights = {"weight_ih_l0": layer.in_proj.weight, "weight_hh_l0": layer.weight[0].T}
    torchs.load_state_dict(weights)
    x = normal(2, 9, 6)
    torch.testing.assert_close(layer(x)[0], layer.out_proj(torchs(x)[0]))


def test_rnn_with_all_its_parts() -> None:
    layer = RNN(RNNConfig(heads=2, init_std=0.5), 6).double()
    x = normal(2, 7, 6)
    inner, gate = layer.in_proj(x).chunk(2, dim=-1)
    assert layer.conv is not None
    assert isinstance(layer.norm, RMSNorm)
    inner = convolved(inner, layer.conv.weight)
    h = torch.zeros(2, 6, dtype=torch.float64)
    whole = torch.block_diag(*layer.weight)
    for t in range(7):
        h = torch.tanh(h @ whole + inner[:, t])
        wanted = layer.out_proj(rms(h * F.silu(gate[:, t]), layer.norm.weight))
        torch.testing.assert_close(layer(x)[0][:, t], wanted)


@pytest.mark.parametrize("qk_heads", [1, 2, 4], ids=["multi_value", "groups", "multi_head"])
def test_m2rnn_step_by_step(qk_heads: int) -> None:
    """arXiv 2603.14360, eq. 13-23, from one input to the next: the gate comes before the norm."""
    layer = M2RNN(M2RNNConfig(heads=4, qk_heads=qk_heads, key_dim=3), 8).double()
    with torch.no_grad():
        layer.weight.add_(normal(4, 2, 2) / 4)
        layer.D.add_(normal(4, 2))
    x = normal(2, 7, 8)
    y, (_, last) = layer(x)
    mixed, a, gate = layer.in_proj(x).split((6 * qk_heads + 8, 4, 8), dim=-1)
    assert layer.conv is not None
    assert isinstance(layer.norm, RMSNorm)
    mixed = convolved(mixed, layer.conv.weight)
    S = torch.zeros(2, 4, 3, 2, dtype=torch.float64)
    for t in range(7):
        q, k, v = mixed[:, t].split((3 * qk_heads, 3 * qk_heads, 8), dim=-1)
        q, k = (part.view(2, qk_heads, 3).repeat_interleave(4 // qk_heads, dim=1) for part in (q, k))
        v = v.view(2, 4, 2)
        f = torch.exp(-layer.A_log.exp() * F.softplus(a[:, t] + layer.dt_bias))[..., None, None]
        Z = torch.tanh(torch.einsum("bhkv,hvw->bhkw", S, layer.weight) + k[..., None] * v[..., None, :])
        S = f * S + (1 - f) * Z
        read = torch.einsum("bhkv,bhk->bhv", S, q) + layer.D * v
        gated = read.flatten(1) * F.silu(gate[:, t])
        torch.testing.assert_close(y[:, t], layer.out_proj(rms(gated, layer.norm.weight)))
    torch.testing.assert_close(last, S)


def test_m2rnn_parts_that_are_off_have_no_parameters() -> None:
    bare = M2RNN(
        M2RNNConfig(conv=0, gate=False, forget_gate=False, residual=False, norm="none", key_dim=5), 8
    )
    assert {name for name, _ in bare.named_parameters()} == {"weight", "in_proj.weight", "out_proj.weight"}
    assert bare.in_proj.out_features == 5 + 5 + 8


@pytest.mark.parametrize("at", ["total", "carried"])
def test_layers_clip_where_they_say(at: Any) -> None:
    """The gradient of a layer's input is that of its op with the same clip, and the two places differ."""
    config = RNNConfig(conv=0, gate=False, norm="none", init_std=0.5, gradient_clip=1e-3, clip_at=at)
    layer, x = RNN(config, 6).double(), normal(2, 9, 6).requires_grad_()
    (clipped,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    h, _ = rnn(layer.in_proj(x).unsqueeze(2), layer.weight, gradient_clip=1e-3, clip_at=at)
    (wanted,) = torch.autograd.grad(layer.out_proj(h.squeeze(2)).square().sum(), x)
    torch.testing.assert_close(clipped, wanted)
    off = RNN(RNNConfig(conv=0, gate=False, norm="none", gradient_clip=0.0), 6).double()
    off.load_state_dict(layer.state_dict())
    (whole,) = torch.autograd.grad(off(x)[0].square().sum(), x)
    assert (clipped - whole).abs().max() > 1e-3


DELTA: list[dict[str, Any]] = [
    {"heads": 2, "eigenvalues": "[-1,1]"},
    {"heads": 1, "expand_v": 1.5, "eigenvalues": "[0,1]", "conv": 0, "gate": False},
]


@pytest.mark.parametrize("options", DELTA, ids=["plus_minus", "bare"])
def test_one_factor_is_gated_delta_with_the_same_weights(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    delta = GatedDelta(GatedDeltaConfig(**options), 8).double()
    torch.manual_seed(1)
    product = GatedDeltaProduct(GatedDeltaProductConfig(n_h=1, **options), 8).double()
    for (name, one), (same, other) in zip(delta.named_parameters(), product.named_parameters(), strict=True):
        assert name == same
        assert torch.equal(one, other)
    x = normal(2, 40, 8)
    (y, (_, state)), (wanted, (_, kept)) = product(x), delta(x)
    assert torch.equal(y, wanted)
    assert torch.equal(state, kept)


def test_delta_product_step_by_step() -> None:
    """flash-linear-attention's layer: factors are the slowest axis of k, v and β, the decay acts once a token."""
    layer = GatedDeltaProduct(GatedDeltaProductConfig(n_h=3, heads=2, head_dim=3, expand_v=1.0), 6).double()
    x = normal(2, 7, 6)
    y, (_, last) = layer(x)
    mixed, a, b, z = layer.in_proj(x).split((6 + 18 + 18, 2, 6, 6), dim=-1)
    assert layer.conv is not None
    mixed = convolved(mixed, layer.conv.weight)
    S = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
    for t in range(7):
        q, k, v = mixed[:, t].split((6, 18, 18), dim=-1)
        q = F.normalize(q.view(2, 2, 3), dim=-1)
        k, v = F.normalize(k.view(2, 3, 2, 3), dim=-1), v.view(2, 3, 2, 3)
        beta = 2 * torch.sigmoid(b[:, t]).view(2, 3, 2)
        S = torch.exp(-layer.A_log.exp() * F.softplus(a[:, t] + layer.dt_bias))[..., None, None] * S
        for j in range(3):
            held = torch.einsum("bhkv,bhk->bhv", S, k[:, j])
            S = S + torch.einsum("bh,bhk,bhv->bhkv", beta[:, j], k[:, j], v[:, j] - held)
        o = rms(torch.einsum("bhkv,bhk->bhv", S, q) / 3**0.5, layer.norm.weight)
        # Their length's eps of 1e-6 is in ours and not in F.normalize.
        wanted = layer.out_proj(o.flatten(1) * F.silu(z[:, t]))
        torch.testing.assert_close(y[:, t], wanted, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(last, S, rtol=1e-3, atol=1e-4)


def test_without_a_forget_gate_nothing_decays() -> None:
    """β of 0 then leaves a state as it is, whatever the input."""
    layer = GatedDeltaProduct(GatedDeltaProductConfig(conv=0, forget_gate=False), 8).double()
    assert not hasattr(layer, "A_log")
    b = slice(sum(layer.parts), sum(layer.parts) + 4)
    with torch.no_grad():
        layer.in_proj.weight[b] = -1e4
    state = normal(5, 2, 4, 8)
    _, (_, after) = layer(1 + normal(5, 3, 8).abs(), ((), state))
    torch.testing.assert_close(after, state)


@pytest.mark.parametrize("position", ["rope", "none"])
def test_attention_is_torchs_multihead_attention(position: Any) -> None:
    layer = Attention(AttentionConfig(heads=2, position=position), 8).double()
    x = normal(2, 9, 8)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in layer.in_proj(x).chunk(3, dim=-1))
    if position == "rope":
        angle = torch.arange(9.0, dtype=torch.float64)[:, None] * torch.tensor(
            [1.0, 0.01], dtype=torch.float64
        )
        q, k = (
            torch.view_as_real(torch.complex(p[..., :2], p[..., 2:]) * torch.exp(1j * angle)) for p in (q, k)
        )
        q, k = (torch.cat((p[..., 0], p[..., 1]), dim=-1) for p in (q, k))
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    wanted = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x)[0], layer.out_proj(wanted))


def test_rotated_products_see_distances_alone() -> None:
    q, k = normal(1, 5, 3, 6), normal(1, 5, 3, 6)
    near = (rotate(q, 7, 1e4) * rotate(k, 3, 1e4)).sum(-1)
    far = (rotate(q, 100_007, 1e4) * rotate(k, 100_003, 1e4)).sum(-1)
    torch.testing.assert_close(near, far, rtol=0, atol=1e-9)
    assert (near - (rotate(q, 8, 1e4) * rotate(k, 3, 1e4)).sum(-1)).abs().max() > 0.1


def test_float32_angles_are_right_a_million_tokens_on() -> None:
    x = torch.randn(1, 4, 1, 8)
    torch.testing.assert_close(rotate(x, 10**6, 1e4), rotate(x.double(), 10**6, 1e4).float())


def test_attention_without_positions_cannot_tell_the_order_of_the_past() -> None:
    x = normal(2, 9, 8)
    swapped = x[:, [1, 0, *range(2, 9)]]
    for position, same in (("none", True), ("rope", False)):
        layer = Attention(AttentionConfig(heads=2, position=position), 8).double()  # type: ignore[arg-type]
        gap = (layer(x)[0] - layer(swapped)[0])[:, -1].abs().max()
        assert bool(gap < 1e-12) == same


def test_attention_keeps_every_key_and_value() -> None:
    layer = Attention(AttentionConfig(heads=2), 8).double()
    state = None
    for length in (3, 1, 4):
        _, state = layer(normal(2, length, 8), state)
    assert state is not None
    assert [tuple(part.shape) for part in state[1:]] == [(2, 8, 2, 4)] * 2
