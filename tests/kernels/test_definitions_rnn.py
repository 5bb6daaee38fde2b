"""The tanh recurrences and the delta product against their papers written another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from statelab.kernels.delta_product import delta_product
from statelab.kernels.delta_product.chunk import chunk
from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.rnn import rnn
from tests.kernels.cases import B, H, K, assert_near, draw_m2rnn, draw_product, draw_rnn, normal


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_rnn_one_number_at_a_time() -> None:
    x, weight, state = draw_rnn(4)
    y, last = rnn(x, weight, state)
    for row in range(B):
        for head in range(H):
            h = state[row, head].tolist()
            for t in range(4):
                h = [
                    math.tanh(
                        sum(h[j] * float(weight[head, j, i]) for j in range(K)) + float(x[row, t, head, i])
                    )
                    for i in range(K)
                ]
                assert y[row, t, head].tolist() == pytest.approx(h, abs=1e-13)
            assert torch.equal(last[row, head], y[row, -1, head])


@pytest.mark.parametrize("groups", [1, H], ids=["multi_value", "multi_head"])
def test_m2rnn_one_state_at_a_time(groups: int) -> None:
    """arXiv 2603.14360, eq. 10-12, in numpy: a state of one row and head is a K × V matrix."""
    q, k, v, forget, weight, state = (tensor.numpy() for tensor in draw_m2rnn(groups)(6))
    y, last = m2rnn(*map(torch.from_numpy, (q, k, v, forget, weight, state)))
    for row in range(B):
        for head in range(H):
            S, group = state[row, head], head * groups // H
            for t in range(6):
                Z = np.tanh(S @ weight[head] + np.outer(k[row, t, group], v[row, t, head]))
                S = forget[row, t, head] * S + (1 - forget[row, t, head]) * Z
                np.testing.assert_allclose(y[row, t, head], S.T @ q[row, t, group], atol=1e-13)
            np.testing.assert_allclose(last[row, head], S, atol=1e-13)


def test_m2rnn_without_a_forget_gate_has_f_0() -> None:
    q, k, v, forget, weight, state = draw_m2rnn(1)(6)
    without = m2rnn(q, k, v, None, weight, state)
    assert_near(without, m2rnn(q, k, v, torch.zeros_like(forget), weight, state), 1e-14)


def test_m2rnn_holds_a_tanh_rnn() -> None:
    """Theorem 1 of arXiv 2603.14360: with f = 0 and q = k = e₁ the first row is h ← tanh(h W + v), all others 0.

    Outputs, states and the gradients of input and weight.
    """
    v, weight, _ = draw_rnn(11)
    first = torch.zeros(B, 11, 1, 5, dtype=torch.float64)
    first[..., 0] = 1
    inputs = [v.requires_grad_(), weight.requires_grad_()]
    y, state = m2rnn(first, first, v, None, weight)
    h, last = rnn(v, weight)
    assert_near([y, state[:, :, 0]], [h, last], 1e-14)
    assert not state[:, :, 1:].any()
    u = normal(*y.shape)
    assert_near(torch.autograd.grad(y, inputs, u), torch.autograd.grad(h, inputs, u), 1e-13)


def test_m2rnn_stays_between_minus_1_and_1() -> None:
    q, k, v, forget, weight, _ = draw_m2rnn(1)(200)
    _, state = m2rnn(q, 10 * k, v, forget, 3 * weight)
    assert 0.9 < state.abs().max() <= 1


def test_m2rnn_heads_that_do_not_fit_the_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="3 heads cannot be split evenly over 2 groups"):
        m2rnn(*draw_m2rnn(2)(5))


def transition(decay: Tensor, k_JK: Tensor, beta_J: Tensor) -> Tensor:
    matrix = decay.exp() * torch.eye(K, dtype=torch.float64)
    for k, beta in zip(k_JK, beta_J, strict=True):
        matrix = (torch.eye(K) - beta * torch.outer(k, k)) @ matrix
    return matrix


@pytest.mark.parametrize("factors", [1, 2, 3])
def test_delta_product_is_a_product_of_householder_matrices(factors: int) -> None:
    """arXiv 2502.10297: S_t = e^g Π_j (I − β_j k_j k_jᵀ) S_{t−1} + …, each v_j seen through the later factors."""
    q, k, v, decay, beta, state = draw_product(factors)(5)
    o, last = delta_product(q, k, v, decay, beta, state, backend="reference")
    zero = torch.zeros((), dtype=torch.float64)
    for row in range(B):
        for head in range(H):
            S = state[row, head]
            for t in range(5):
                keys, strengths = k[row, t, :, head], beta[row, t, :, head]
                S = transition(decay[row, t, head], keys, strengths) @ S
                for j in range(factors):
                    later = transition(zero, keys[j + 1 :], strengths[j + 1 :])
                    S = S + strengths[j] * later @ torch.outer(keys[j], v[row, t, j, head])
                assert_near([o[row, t, head]], [S.T @ q[row, t, head] / K**0.5], 1e-13)
            assert_near([last[row, head]], [S], 1e-13)


@pytest.mark.parametrize("backend", ["reference", "chunk"])
@pytest.mark.parametrize("time", [7, 40])
def test_one_factor_is_the_delta_rule_bit_for_bit(backend: str, time: int) -> None:
    q, k, v, decay, beta, state = draw_product(1)(time)
    single = (q, k[:, :, 0], v[:, :, 0], decay, beta[:, :, 0])
    for start in (state, None):
        product = delta_product(q, k, v, decay, beta, start, backend=backend)  # type: ignore[arg-type]
        rule = delta_rule(*single, start, backend=backend)  # type: ignore[arg-type]
        assert torch.equal(product[0], rule[0])
        assert torch.equal(product[1], rule[1])


@pytest.mark.parametrize("backend", ["reference", "chunk"])
def test_no_decay_is_a_decay_of_1(backend: str) -> None:
    q, k, v, decay, beta, state = draw_product(2)(9)
    without = delta_product(q, k, v, None, beta, state, backend=backend)  # type: ignore[arg-type]
    with_one = delta_product(q, k, v, 0 * decay, beta, state, backend=backend)  # type: ignore[arg-type]
    assert_near(without, with_one, 1e-15)


def test_two_reflections_turn_what_one_can_not() -> None:
    """β = 2 twice, no decay: three axes are permuted in a ring, a rotation that no single reflection is."""
    axes = torch.eye(3, dtype=torch.float64)
    keys = torch.stack((axes[0] - axes[1], axes[1] - axes[2])) / math.sqrt(2)
    v, beta = torch.zeros(1, 1, 2, 1, 1, dtype=torch.float64), torch.full((1, 1, 2, 1), 2.0).double()
    state = torch.tensor([1.0, 2.0, 3.0]).double().view(1, 1, 3, 1)
    _, moved = delta_product(axes[:1].view(1, 1, 1, 3), keys.view(1, 1, 2, 1, 3), v, None, beta, state)
    assert moved.flatten().tolist() == pytest.approx([2.0, 3.0, 1.0])


@pytest.mark.parametrize("length", [1, 2, 5, 7, 64])
def test_the_length_of_a_chunk_changes_nothing(length: int) -> None:
    q, k, v, decay, beta, state = draw_product(3)(23)
    inputs = (q, k, v, decay, beta, state)
    assert_near(chunk(*inputs, length=length), chunk(*inputs, length=69), 1e-12)


def test_no_factor_is_refused() -> None:
    q, k, v, decay, beta, _ = draw_product(2)(3)
    with pytest.raises(ValueError, match="needs at least one factor, got J = 0"):
        delta_product(q, k[:, :, :0], v[:, :, :0], decay, beta[:, :, :0])
    with pytest.raises(ValueError, match=r"beta must be \[B, T, J, H\] = \[2, 3, 2, 3\], got \[2, 3, 1, 3\]"):
        delta_product(q, k, v, decay, beta[:, :, :1])
