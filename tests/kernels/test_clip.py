"""Clipping states' gradients: both places against backpropagation written by hand, in pieces and under vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.kernels.clip import ClipAt
from statelab.kernels.gru import gru
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.rnn import rnn
from tests.kernels.cases import B, H, K, V, assert_near, draw_gru, draw_m2rnn, draw_rnn, normal, weighted

PLACES: tuple[ClipAt, ...] = ("total", "carried")
each_place = pytest.mark.parametrize("at", PLACES)
each_bound = pytest.mark.parametrize("bound", [None, 0.05, 0.7], ids=str)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(outputs, inputs, given))


def clamp(gradient: Tensor, bound: float | None) -> Tensor:
    return gradient if bound is None else gradient.clamp(-bound, bound)


def join(readout: Tensor, future: Tensor, bound: float | None, at: ClipAt) -> Tensor:
    return clamp(readout + future, bound) if at == "total" else readout + clamp(future, bound)


def rnn_by_hand(
    inputs: list[Tensor], u: Tensor, last: Tensor, bound: float | None, at: ClipAt
) -> list[Tensor]:
    """Gradients of input, weight and first state; `u [B, T, H, K]` those of y, `last` that of the last state."""
    x, weight, h = inputs
    states = [h]
    for t in range(x.shape[1]):
        states.append(torch.tanh(torch.einsum("bhj,hjk->bhk", states[-1], weight) + x[:, t]))
    dx, dweight, future = torch.zeros_like(x), torch.zeros_like(weight), last
    for t in reversed(range(x.shape[1])):
        dx[:, t] = join(u[:, t], future, bound, at) * (1 - states[t + 1] ** 2)
        dweight += torch.einsum("bhj,bhk->hjk", states[t], dx[:, t])
        future = torch.einsum("bhk,hjk->bhj", dx[:, t], weight)
    return [dx, dweight, future]


def m2rnn_by_hand(
    inputs: list[Tensor], u: Tensor, last: Tensor, bound: float | None, at: ClipAt
) -> list[Tensor]:
    """The chain rule of arXiv 2603.14360, eq. 10-12, with what future steps send back (its Algorithm 2 has not)."""
    q, k, v, f, weight, first = inputs
    states, candidates = [first], []
    for t in range(q.shape[1]):
        write = torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        candidates.append(torch.tanh(torch.einsum("bhkv,hvw->bhkw", states[-1], weight) + write))
        keep = f[:, t, :, None, None]
        states.append(keep * states[-1] + (1 - keep) * candidates[-1])
    dq, dk, dv, df, dweight, future = (*map(torch.zeros_like, (q, k, v, f, weight)), last)
    for t in reversed(range(q.shape[1])):
        total = join(torch.einsum("bhk,bhv->bhkv", q[:, t], u[:, t]), future, bound, at)
        keep, before, z = f[:, t, :, None, None], states[t], candidates[t]
        inner = (1 - keep) * total * (1 - z**2)
        dq[:, t] = torch.einsum("bhkv,bhv->bhk", states[t + 1], u[:, t])
        dk[:, t] = torch.einsum("bhkv,bhv->bhk", inner, v[:, t])
        dv[:, t] = torch.einsum("bhkv,bhk->bhv", inner, k[:, t])
        df[:, t] = (total * (before - z)).sum(dim=(-2, -1))
        dweight += torch.einsum("bhkv,bhkw->hvw", before, inner)
        future = keep * total + torch.einsum("bhkw,hvw->bhkv", inner, weight)
    return [dq, dk, dv, df, dweight, future]


@each_place
@each_bound
def test_rnn_is_backpropagation_by_hand(bound: float | None, at: ClipAt) -> None:
    inputs = [tensor.requires_grad_() for tensor in draw_rnn(9)]
    u, last = normal(B, 9, H, K), normal(B, H, K)
    got = gradients(rnn(*inputs, gradient_clip=bound, clip_at=at), inputs, (u, last))
    assert_near(got, rnn_by_hand([tensor.detach() for tensor in inputs], u, last, bound, at), 1e-13)


@each_place
@each_bound
def test_m2rnn_is_backpropagation_by_hand(bound: float | None, at: ClipAt) -> None:
    inputs = [tensor.requires_grad_() for tensor in draw_m2rnn(H)(9)]
    u, last = normal(B, 9, H, V), normal(B, H, K, V)
    outputs = m2rnn(*inputs, gradient_clip=bound, clip_at=at)
    got = gradients(outputs, inputs, (u, last))
    assert_near(got, m2rnn_by_hand([tensor.detach() for tensor in inputs], u, last, bound, at), 1e-13)


@each_place
@each_bound
def test_gru_is_single_steps_with_a_hook_on_their_state(bound: float | None, at: ClipAt) -> None:
    inputs = [tensor.requires_grad_() for tensor in draw_gru(9)]
    u, last = normal(B, 9, H, K), normal(B, H, K)
    got = gradients(gru(*inputs, gradient_clip=bound, clip_at=at), inputs, (u, last))
    *along, weight, reset_weight, forget_weight, carried = inputs
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(9):
        step = [tensor[:, t : t + 1] for tensor in along]
        h = gru(*[*step, weight, reset_weight, forget_weight, carried])[1]
        carried = h.view_as(h)
        (h if at == "total" else carried).register_hook(lambda gradient: clamp(gradient, bound))
        loss = loss + (h * u[:, t]).sum()
    assert_near(got, torch.autograd.grad(loss + (carried * last).sum(), inputs), 1e-13)


@pytest.mark.parametrize(("at", "wanted"), [("total", 0.5), ("carried", 3.5)])
def test_one_number_by_hand(at: ClipAt, wanted: float) -> None:
    """h₁ = tanh(x₁) = 0, h₂ = tanh(2 h₁) = 0, loss 3 y₁ + 4 y₂: 3 from the readout and, clipped, from h₂.

    total: h₂ gets 0.5 of 4, sends back 2 · 0.5 = 1, and h₁ gets 0.5 of 3 + 1. carried: h₂ gets all of 4 and
    sends back 8, of which 0.5 is left beside 3.
    """
    x = torch.zeros(1, 2, 1, 1, requires_grad=True)
    y, _ = rnn(x, torch.full((1, 1, 1), 2.0), gradient_clip=0.5, clip_at=at)
    (gradient,) = torch.autograd.grad((y.flatten() * torch.tensor([3.0, 4.0])).sum(), x)
    assert float(gradient[0, 0]) == wanted


def op_of(inputs: Sequence[Tensor]) -> Any:
    return {3: rnn, 6: m2rnn, 7: gru}[len(inputs)]


def run(inputs: Sequence[Tensor], at: ClipAt) -> tuple[Tensor, ...]:
    answer: tuple[Tensor, ...] = op_of(inputs)(*inputs, gradient_clip=0.05, clip_at=at)
    return answer


DRAWS = pytest.mark.parametrize("draw", [draw_gru, draw_rnn, draw_m2rnn(1)], ids=["gru", "rnn", "m2rnn"])


@each_place
@DRAWS
def test_pieces_are_clipped_where_the_whole_is(draw: Any, at: ClipAt) -> None:
    inputs = [tensor.requires_grad_() for tensor in draw(12)]
    along = sum(tensor.ndim > 2 and tensor.shape[:2] == (B, 12) for tensor in inputs)
    outputs, state = [], inputs[-1]
    for start, stop in ((0, 1), (1, 7), (7, 12)):
        piece = [tensor[:, start:stop] for tensor in inputs[:along]]
        y, state = run([*piece, *inputs[along:-1], state], at)
        outputs.append(y)
    cut = torch.autograd.grad(weighted((torch.cat(outputs, dim=1), state)), inputs)
    assert_near(cut, torch.autograd.grad(weighted(run(inputs, at)), inputs), 1e-13)


@each_place
@DRAWS
def test_lanes_under_vmap_are_clipped_alone(draw: Any, at: ClipAt) -> None:
    lanes = [draw(8) for _ in range(3)]
    stacked = [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(lambda *tensors: run(tensors, at))(*stacked)
    loss = torch.stack([weighted([output[lane] for output in together]) for lane in range(3)]).sum()
    got = torch.autograd.grad(loss, stacked)
    for lane in range(3):
        inputs = [tensor.requires_grad_() for tensor in lanes[lane]]
        wanted = torch.autograd.grad(weighted(run(inputs, at)), inputs)
        assert_near([tensor[lane] for tensor in got], wanted, 1e-12)


@DRAWS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip": 0.0}, "gradient_clip must be > 0, or None for none, got 0.0"),
        ({"clip_at": "end"}, "unknown clip_at 'end'; use total or carried"),
    ],
)
def test_what_cannot_clip_is_refused(draw: Any, options: dict[str, Any], message: str) -> None:
    inputs = draw(3)
    with pytest.raises(ValueError, match=message):
        op_of(inputs)(*inputs, **options)
