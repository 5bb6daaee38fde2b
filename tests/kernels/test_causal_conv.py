"""The causal convolution: its fast form is its definition, in every gradient and under vmap."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from statelab.kernels.causal_conv import causal_conv
from tests.kernels.cases import TOLERANCES, assert_near, normal, weighted


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def draw(time: int, taps: int) -> list[Tensor]:
    return [normal(3, time, 5), normal(taps, 5), normal(5), normal(3, taps - 1, 5)]


def gradients(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    return [*outputs, *torch.autograd.grad(weighted(outputs), inputs)]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("time", "taps"), [(1, 4), (2, 4), (63, 3), (9, 2)], ids=str)
def test_shifted_is_the_reference(time: int, taps: int, dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in draw(time, taps)]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    got = gradients(causal_conv(*inputs, backend="shifted"), inputs)
    wanted = gradients(causal_conv(*wide, backend="reference"), wide)
    assert_near(got, wanted, TOLERANCES[dtype])


def test_gradients_are_those_of_finite_differences() -> None:
    inputs = [tensor.requires_grad_() for tensor in draw(5, 3)]
    assert torch.autograd.gradcheck(causal_conv, inputs)


@pytest.mark.parametrize("shared", [0, 1, 2, 3], ids=["input", "weight", "bias", "state"])
def test_lanes_under_vmap_are_lone_runs_whatever_they_share(shared: int) -> None:
    lanes = [draw(7, 3) for _ in range(4)]
    inputs = [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]
    inputs[shared] = inputs[shared][0]
    in_dims = tuple(None if place == shared else 0 for place in range(4))
    leaves = [tensor.requires_grad_() for tensor in inputs]
    got = gradients(torch.func.vmap(causal_conv, in_dims=in_dims)(*leaves), leaves)
    alone = [
        causal_conv(*(leaf if place == shared else leaf[lane] for place, leaf in enumerate(leaves)))
        for lane in range(4)
    ]
    wanted = gradients(
        (torch.stack([y for y, _ in alone]), torch.stack([state for _, state in alone])), leaves
    )
    assert_near(got, wanted, 1e-12)


def test_pieces_are_the_whole() -> None:
    x, weight, bias, before = draw(9, 4)
    whole, last = causal_conv(x, weight, bias, before)
    one, state = causal_conv(x[:, :2], weight, bias, before)
    two, after = causal_conv(x[:, 2:], weight, bias, state)
    assert_near([torch.cat((one, two), dim=1), after], [whole, last], 1e-13)


def test_an_activation_is_put_behind() -> None:
    x, weight, bias, before = draw(9, 4)
    raw, last = causal_conv(x, weight, bias, before)
    for backend in ("reference", "shifted"):
        y, after = causal_conv(x, weight, bias, before, activation="silu", backend=backend)  # type: ignore[arg-type]
        assert_near([y, after], [raw * torch.sigmoid(raw), last], 1e-13)
    with pytest.raises(ValueError, match="unknown activation 'relu'; use none or silu"):
        causal_conv(x, weight, activation="relu")  # type: ignore[arg-type]


def test_more_taps_than_the_kernel_takes_are_refused_with_a_sentence() -> None:
    x, weight = (tensor.float() for tensor in draw(9, 9)[:2])
    with pytest.raises(ValueError, match="the Triton kernel takes up to 8 taps, got 9; use backend 'auto'"):
        causal_conv(x, weight, backend="triton")


def test_a_state_of_another_length_is_refused() -> None:
    x, weight, bias, before = draw(9, 4)
    with pytest.raises(ValueError, match=r"state must be \[B, J - 1, C\] = \[3, 3, 5\], got \[3, 2, 5\]"):
        causal_conv(x, weight, bias, before[:, 1:])
    with pytest.raises(ValueError, match=r"bias must be \[C\] = \[5\], got \[4\]"):
        causal_conv(x, weight, bias[:4])
