"""Each reference against its paper written another way: closed forms, sums over the past, scalars one by
one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.delta_rule.chunk import chunk as delta_chunk
from statelab.kernels.gru import gru
from statelab.kernels.mlstm import mlstm
from statelab.kernels.ssd import ssd
from statelab.kernels.ssd.chunk import chunk as ssd_chunk
from tests.kernels.cases import B, H, K, V, assert_near, draw_delta, draw_gru, draw_mlstm, draw_ssd, normal


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_gru_one_number_at_a_time() -> None:
    x, reset, forget, weight, reset_weight, forget_weight, state = draw_gru(4)
    y, last = gru(x, reset, forget, weight, reset_weight, forget_weight, state)

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    for row in range(B):
        for head in range(H):
            h = [float(state[row, head, i]) for i in range(K)]
            for t in range(4):
                at = (row, t, head)

                def product(left: list[float], matrix: Tensor, i: int, head: int = head) -> float:
                    return sum(left[j] * float(matrix[head, j, i]) for j in range(K))

                r = [sigmoid(product(h, reset_weight, i) + float(reset[at][i])) for i in range(K)]
                f = [sigmoid(product(h, forget_weight, i) + float(forget[at][i])) for i in range(K)]
                kept = [h[j] * r[j] for j in range(K)]
                z = [math.tanh(product(kept, weight, i) + float(x[at][i])) for i in range(K)]
                h = [f[i] * h[i] + (1 - f[i]) * z[i] for i in range(K)]
                assert_near([y[at]], [torch.tensor(h, dtype=torch.float64)], 1e-13)
            assert_near([last[row, head]], [torch.tensor(h, dtype=torch.float64)], 1e-13)


@pytest.mark.parametrize("groups", [1, H], ids=["one_group", "group_per_head"])
def test_ssd_is_a_masked_attention(groups: int) -> None:
    """y_t = Σ_{s ≤ t} (C_t · B_s) Π_{s < r ≤ t} a_r x_s: arXiv 2405.21060, eq. 16."""
    x, decay, write, read, _ = draw_ssd(groups)(11)
    y, _ = ssd(x, decay, write, read, backend="reference")
    wanted = torch.zeros_like(y)
    for t in range(11):
        for s in range(t + 1):
            kept = decay[:, s + 1 : t + 1].sum(1).exp()
            score = (read[:, t] * write[:, s]).sum(-1).expand(B, H)
            wanted[:, t] += (kept * score).unsqueeze(-1) * x[:, s]
    assert_near([y], [wanted], 1e-13)


def test_delta_rule_is_a_product_of_transitions() -> None:
    """S_t = e^g (I − β k kᵀ) S_{t−1} + β k vᵀ: arXiv 2412.06464, eq. 10, transposed."""
    q, k, v, decay, beta, state = draw_delta(9)
    o, last = delta_rule(q, k, v, decay, beta, state, backend="reference")
    for t in range(9):
        kk = k[:, t, :, :, None] * k[:, t, :, None, :]
        transition = decay[:, t].exp()[..., None, None] * (torch.eye(K) - beta[:, t, :, None, None] * kk)
        state = transition @ state + beta[:, t, :, None, None] * k[:, t, :, :, None] * v[:, t, :, None, :]
        assert_near([o[:, t]], [(q[:, t, :, None, :] @ state).squeeze(-2) / K**0.5], 1e-13)
    assert_near([last], [state], 1e-13)


def test_delta_rule_replaces_what_a_key_holds() -> None:
    """With β = 1 and no decay, writing twice under a key leaves the second value alone."""
    key = torch.nn.functional.normalize(normal(B, 1, H, K), dim=-1).expand(B, 2, H, K)
    v, ones = normal(B, 2, H, V), torch.ones(B, 2, H, dtype=torch.float64)
    o, _ = delta_rule(key, key, v, ones * 0, ones, scale=1.0)
    assert_near([o], [v], 1e-13)


@pytest.mark.parametrize("time", [16, 256])
def test_delta_rule_in_float32_survives_one_key_repeated_at_beta_2(time: int) -> None:
    """Eigenvalue −1 at every step, as running parity wants it: entries of a power series would reach 3^L."""
    key = torch.nn.functional.normalize(torch.randn(1, 1, 1, K), dim=-1).expand(1, time, 1, K)
    v = torch.randn(1, time, 1, V)
    beta, decay = torch.full((1, time, 1), 1.999), torch.full((1, time, 1), -1e-4)
    got, _ = delta_rule(key, key, v, decay, beta, backend="chunk")
    wide = [tensor.double() for tensor in (key, key, v, decay, beta)]
    wanted, _ = delta_rule(*wide, backend="reference")
    assert_near([got], [wanted], 1e-4)


def test_mlstm_is_a_normalised_sum_over_the_past() -> None:
    """Unstabilised: h = Σ w_s (k_s·q) v_s / max(|Σ w_s k_s·q|, 1), w_s = exp(ĩ_s) Π σ(f̃): arXiv
    2405.04517."""
    q, k, v, gate, forget = draw_mlstm(11)[:5]
    h, (C, n, m) = mlstm(q, k, v, gate, forget, backend="reference")
    keys, log_forget = k / K**0.5, torch.nn.functional.logsigmoid(forget)
    for t in range(11):
        weights = torch.stack(
            [(gate[:, s] + log_forget[:, s + 1 : t + 1].sum(1)).exp() for s in range(t + 1)], dim=1
        ).unsqueeze(-1)
        scores = (keys[:, : t + 1] * q[:, t : t + 1]).sum(-1, keepdim=True) * weights
        wanted = (scores * v[:, : t + 1]).sum(1) / scores.sum(1).abs().clamp_min(1)
        assert_near([h[:, t]], [wanted], 1e-4)  # the denominator's eps of 1e-6, in units of e^-m
    total = torch.einsum("bshk,bshv,bsh->bhkv", keys, v, weights.squeeze(-1))
    assert_near([C * m.exp()[..., None, None]], [total], 1e-13)
    assert_near([n * m.exp()[..., None]], [(weights * keys).sum(1)], 1e-13)


@pytest.mark.parametrize("size", [-300.0, 300.0])
def test_mlstm_does_not_overflow_where_its_gates_would(size: float) -> None:
    q, k, v, gate, forget = draw_mlstm(20)[:5]
    inputs = [tensor.float().requires_grad_() for tensor in (q, k, v, gate + size, forget)]
    for backend in ("reference", "chunk"):
        h, _ = mlstm(*inputs, backend=backend)  # type: ignore[arg-type, misc]
        gradients = torch.autograd.grad(h.sum(), inputs)
        assert all(torch.isfinite(tensor).all() for tensor in (h, *gradients))


def test_mlstm_gradient_has_the_denominators_part() -> None:
    """With q scaled up past the floor, h does not depend on the length of q, so q · ∂h/∂q is 0."""
    q, k, v, gate, forget = draw_mlstm(12)[:5]
    q = (q * 1e6).requires_grad_()
    h, _ = mlstm(q, k, v, gate + 20, forget)
    (gradient,) = torch.autograd.grad((h * normal(*h.shape)).sum(), q)
    # The first step has one key alone, and no gradient in any direction.
    gradient, q = gradient[:, 1:], q.detach()[:, 1:]
    along = (gradient * q).sum(-1).abs()
    assert (along <= 1e-4 * gradient.norm(dim=-1) * q.norm(dim=-1)).all()


def test_an_unknown_read_is_refused() -> None:
    with pytest.raises(ValueError, match="read must be 'plain' or 'orthogonal'"):
        mlstm(*draw_mlstm(3)[:5], read="polar")  # type: ignore[arg-type, misc]


def test_heads_that_do_not_fit_the_groups_are_refused() -> None:
    x, decay, write, read, _ = draw_ssd(2)(5)
    with pytest.raises(ValueError, match="3 heads cannot be split evenly over 2 groups"):
        ssd(x, decay, write, read)


@pytest.mark.parametrize("length", [1, 2, 5, 64])
def test_the_length_of_a_chunk_changes_nothing(length: int) -> None:
    delta, wide = draw_delta(23), draw_ssd(1)(23)
    assert_near(delta_chunk(*delta, length=length), delta_chunk(*delta, length=23), 1e-12)  # type: ignore[arg-type, misc]
    assert_near(ssd_chunk(*wide, length=length), ssd_chunk(*wide, length=23), 1e-12)  # type: ignore[arg-type, misc]
