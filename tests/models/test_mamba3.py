"""Mamba-3's layer: a step written out, SISO as MIMO of rank 1, and what each ablation takes away."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.models.mamba3 import Mamba3, Mamba3Config
from statelab.models.mamba3_inputs import decay_rate, position_angle
from tests.models.cases import stir
from tests.models.test_mixers_initial import assert_uniform, step_of


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def made(width: int, **options: Any) -> Mamba3:
    layer = Mamba3(Mamba3Config(**options), width).double()
    stir(layer)
    return layer


def turned(channels: Tensor, phase: Tensor) -> Tensor:
    """`[..., N]` as complex pairs, the first of them multiplied by e^{iφ}."""
    pairs = torch.view_as_complex(channels.unflatten(-1, (-1, 2)).contiguous())
    factor = F.pad(
        torch.polar(torch.ones_like(phase), phase), (0, pairs.shape[-1] - phase.shape[-1]), value=1
    )
    return torch.view_as_real(pairs * factor).flatten(-2)


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("norm", ["none", "before_gate"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_as_the_papers_code_writes_it(ranks: int, norm: str) -> None:
    """Two rows, 3 heads of 4 channels, 6 state values of which the first 2 turn, one group."""
    layer = made(6, head_dim=4, d_state=6, rank=ranks, norm=norm)
    x = normal(2, 7, 6)
    y, (_, (_, _, _, last)) = layer(x)
    ones = torch.ones(ranks, 3, 4, dtype=torch.float64)
    of_x, of_z, of_o = (
        ones if scale is None else scale for scale in (layer.mimo_x, layer.mimo_z, layer.mimo_o)
    )
    assert layer.B_bias is not None
    assert layer.C_bias is not None
    h, phase = normal(2, 3, 4, 6) * 0, normal(2, 3, 1) * 0
    before = normal(2, 3, 4, 6) * 0
    for t in range(7):
        z, inner, b, c, dt, a, lam, theta = layer.in_proj(x[:, t]).split(
            (12, 12, 6 * ranks, 6 * ranks, 3, 3, 3, 1), dim=-1
        )
        delta = F.softplus(dt + layer.dt_bias)
        rate = torch.where(a >= 0, 1 + a, 1 / (1 - a))
        alpha, weight = torch.exp(-delta * rate)[..., None, None], torch.sigmoid(lam)[..., None, None]
        phase = phase + math.pi * torch.tanh(theta).unsqueeze(1) * delta.unsqueeze(-1)
        at_rank = phase.unsqueeze(1)
        b = rms(b.view(2, ranks, 1, 6)) * layer.B_norm.weight + layer.B_bias
        c = rms(c.view(2, ranks, 1, 6)) * layer.C_norm.weight + layer.C_bias
        b, c = turned(b, at_rank), turned(c, at_rank)
        values = inner.view(2, 1, 3, 4) * of_x
        now = torch.einsum("brhp,brhn->bhpn", values, b)
        size = delta[..., None, None]
        h = alpha * h + (1 - weight) * size * alpha * before + weight * size * now
        before = now
        out = torch.einsum("bhpn,brhn->brhp", h, c) + layer.D[:, None] * values
        if layer.norm is not None:
            out = rms(out) * layer.norm.weight
        out = out * F.silu(z.view(2, 1, 3, 4) * of_z) * of_o
        torch.testing.assert_close(y[:, t], layer.out_proj(out.sum(1).flatten(1)))
    torch.testing.assert_close(last, h)


@pytest.mark.parametrize("norm", ["none", "before_gate", "after_gate"])
def test_siso_is_mimo_of_rank_1(norm: str) -> None:
    siso = made(6, head_dim=4, d_state=6, norm=norm)
    x = normal(2, 9, 6)
    wanted, _ = siso(x)
    for name in ("mimo_x", "mimo_z", "mimo_o"):
        setattr(siso, name, nn.Parameter(torch.ones(1, 3, 4, dtype=torch.float64)))
    torch.testing.assert_close(siso(x)[0], wanted, rtol=0, atol=1e-14)


def test_mimo_with_the_same_b_and_c_in_every_rank_starts_as_siso() -> None:
    """mimo_x and mimo_o are 1/R, so R equal ranks write and read what one does, but for D / R of the skip."""
    mimo = Mamba3(Mamba3Config(head_dim=4, d_state=6, rank=3), 6).double()
    siso = Mamba3(Mamba3Config(head_dim=4, d_state=6), 6).double()
    z_x, b, c, rest = mimo.in_proj.weight.detach().split((24, 18, 18, 10))
    with torch.no_grad():
        siso.in_proj.weight.copy_(torch.cat((z_x, b[:6], c[:6], rest)))
        mimo.in_proj.weight.copy_(torch.cat((z_x, b[:6].repeat(3, 1), c[:6].repeat(3, 1), rest)))
        siso.dt_bias.copy_(mimo.dt_bias)
        siso.out_proj.weight.copy_(mimo.out_proj.weight)
        mimo.D.mul_(3)
    x = normal(2, 9, 6)
    torch.testing.assert_close(mimo(x)[0], siso(x)[0])


def count(**options: Any) -> int:
    layer = Mamba3(Mamba3Config(head_dim=4, d_state=8, **options), 6)
    return sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("options", "fewer"),
    [
        ({"biases": "none"}, 2 * 3 * 8),
        ({"biases": "B"}, 3 * 8),
        ({"biases": "C"}, 3 * 8),
        ({"bias_learned": False}, 2 * 3 * 8),
        ({"trapezoid": "half"}, 6 * 3),
        ({"trapezoid": "one"}, 6 * 3),
        ({"rotation": "rope"}, 6 * 2),
        ({"rotation": "none"}, 6 * 2),
        ({"decay": "fixed"}, 6 * 3 - 3),
        ({"rope_fraction": 1.0}, -6 * 2),
        ({"norm": "before_gate"}, -12),
        ({"norm": "after_gate", "norm_groups": "all"}, -12),
        ({"conv": 4}, -5 * 28),
        ({"phase": "raw"}, 0),
        ({"rank": 2}, -(6 * 16 + 2 * 24 + 3 * 2 * 12)),
    ],
    ids=str,
)
def test_an_ablation_takes_its_parameters_away(options: dict[str, Any], fewer: int) -> None:
    assert count() == 6 * (12 + 12 + 8 + 8 + 3 + 3 + 3 + 2) + 6 * 12 + 2 * 8 + 2 * 3 * 8 + 3 + 3
    assert count() - count(**options) == fewer


def with_weights_of(layer: Mamba3, **options: Any) -> Mamba3:
    """A layer of other options with the same parameters, where both have them."""
    other = Mamba3(Mamba3Config(head_dim=4, d_state=8, **options), 6).double()
    other.load_state_dict(layer.state_dict(), strict=False)
    return other


def test_fixed_weights_are_learned_ones_held_still() -> None:
    """λ = 1/2 and λ = 1 are σ of a projection of zeros and of a great constant."""
    learned = made(6, head_dim=4, d_state=8)
    x = normal(2, 9, 6)
    x[..., 5] = 1
    rows = slice(12 + 12 + 16 + 6, 12 + 12 + 16 + 9)
    for kind, constant in (("half", 0.0), ("one", 60.0)):
        with torch.no_grad():
            learned.in_proj.weight[rows] = 0
            learned.in_proj.weight[rows, 5] = constant
        fixed = Mamba3(Mamba3Config(head_dim=4, d_state=8, trapezoid=kind), 6).double()  # type: ignore[arg-type]
        state = learned.state_dict()
        weight = state["in_proj.weight"]
        state["in_proj.weight"] = torch.cat((weight[: rows.start], weight[rows.stop :]))
        fixed.load_state_dict(state)
        torch.testing.assert_close(fixed(x)[0], learned(x)[0])


def test_biases_that_are_zero_are_none() -> None:
    zeros = Mamba3(Mamba3Config(head_dim=4, d_state=8, bias_init="0"), 6).double()
    x = normal(2, 9, 6)
    none = with_weights_of(zeros, biases="none")
    torch.testing.assert_close(none(x)[0], zeros(x)[0])
    ones = with_weights_of(zeros)
    with torch.no_grad():
        for bias in (ones.B_bias, ones.C_bias):
            assert bias is not None
            bias.fill_(1)
    assert (ones(x)[0] - none(x)[0]).abs().max() > 1e-3


def test_position_alone_turns_as_rope_does() -> None:
    """With RoPE the angle between two steps depends on their distance: frequencies 1, 1/10, 1/100, 1/1000."""
    angle = position_angle(torch.zeros(2, 5, 3, dtype=torch.float64), 4)
    assert angle.shape == (2, 5, 3, 4)
    torch.testing.assert_close(angle[1, 3, 2], torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64))
    layer = made(6, head_dim=4, d_state=8, rotation="rope", rope_fraction=1.0)
    _, (_, (phase, *_)) = layer(normal(2, 7, 6))
    torch.testing.assert_close(phase, (7 * angle[:, 0]).remainder(2 * math.pi))


@pytest.mark.parametrize("kind", ["tanh", "raw"])
def test_a_step_turns_by_its_projection_times_its_length(kind: str) -> None:
    layer = made(6, head_dim=4, d_state=8, phase=kind)
    x = normal(2, 1, 6)
    _, (_, (phase, *_)) = layer(x)
    *_, dt, _, _, theta = layer.in_proj(x[:, 0]).split((12, 28, 3, 3, 3, 2), dim=-1)
    angle = math.pi * torch.tanh(theta) if kind == "tanh" else theta
    wanted = F.softplus(dt + layer.dt_bias).unsqueeze(-1) * angle.unsqueeze(1)
    torch.testing.assert_close(phase, wanted.remainder(2 * math.pi))


def test_decay_rates() -> None:
    a = torch.tensor([-1e5, -3.0, -1.0, 0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    rate = decay_rate(a, "rational", 1e-4)
    torch.testing.assert_close(rate, torch.tensor([1e-4, 0.25, 0.5, 1, 2, 4], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(rate.sum(), a)
    torch.testing.assert_close(gradient[[0, 1, 4]], torch.tensor([0, 1 / 16, 1], dtype=torch.float64))
    assert torch.isfinite(gradient).all()
    torch.testing.assert_close(decay_rate(a, "softplus", 0.0), F.softplus(a))


def test_norm_after_the_gate_gives_each_head_unit_size() -> None:
    for groups, axis in (("heads", -1), ("all", (-2, -1))):
        layer = Mamba3(Mamba3Config(head_dim=4, d_state=8, norm="after_gate", norm_groups=groups), 6).double()  # type: ignore[arg-type]
        seen: list[Tensor] = []
        layer.out_proj.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))  # type: ignore[misc]
        layer(10 * normal(2, 9, 6))
        size = seen[0].unflatten(-1, (3, 4)).square().mean(axis)
        torch.testing.assert_close(size, torch.ones_like(size), rtol=0, atol=1e-2)


def test_initial_values() -> None:
    layer = Mamba3(Mamba3Config(head_dim=1, d_state=2, rank=4, rope_fraction=1.0), 256, blocks=4)
    assert_uniform(step_of(layer.dt_bias), math.log(1e-3), math.log(0.1))
    for bias in (layer.B_bias, layer.C_bias):
        assert bias is not None
        assert torch.equal(bias, torch.ones(4, 512, 2))
    for scale, value in ((layer.mimo_x, 0.25), (layer.mimo_z, 1.0), (layer.mimo_o, 0.25)):
        assert scale is not None
        assert torch.equal(scale, torch.full((4, 512, 1), value))
    assert torch.equal(layer.D, torch.ones(512))
    assert_uniform(layer.in_proj.weight, -1 / 16, 1 / 16)
    assert_uniform(layer.out_proj.weight, -(512**-0.5) / 2, 512**-0.5 / 2)


def test_initial_values_that_are_asked_for() -> None:
    options: dict[str, Any] = {"head_dim": 1, "d_state": 4}
    layer = Mamba3(Mamba3Config(step_min=0.1, step_max=1.0, decay="fixed", **options), 256)
    assert_uniform(step_of(layer.dt_bias), math.log(0.1), 0)
    assert layer.A_log is not None
    assert_uniform(layer.A_log.exp(), 1, 16)
    for init, low, high in (("U(0,1)", 0, 1), ("U(-1,1)", -1, 1)):
        options["bias_init"] = init
        bias = Mamba3(Mamba3Config(**options), 256).B_bias
        assert bias is not None
        assert_uniform(bias, low, high)


def test_heads_may_be_given_in_place_of_their_size() -> None:
    layer = Mamba3(Mamba3Config(heads=3, d_state=8), 6)
    assert (layer.heads, layer.head_dim) == (3, 4)
