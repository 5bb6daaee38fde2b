"""Attention: torch's form is the definition, in pieces, in every gradient and under vmap."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from statelab.kernels.attention import attention
from tests.kernels.cases import TOLERANCES, assert_near, normal, with_gradients

BACKENDS: tuple[Literal["reference", "sdpa"], ...] = ("reference", "sdpa")
SIZES = [(1, 1), (1, 9), (5, 9), (33, 33)]
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def draw(queries: int, keys: int) -> list[Tensor]:
    return [normal(2, queries, 3, 6), normal(2, keys, 3, 6), normal(2, keys, 3, 4)]


def run(inputs: object, backend: str) -> tuple[Tensor, ...]:
    return (attention(*inputs, backend=backend),)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("queries", "keys"), SIZES, ids=str)
def test_torchs_is_the_reference(queries: int, keys: int, dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype) for tensor in draw(queries, keys)]
    wide = [tensor.double() for tensor in inputs]
    got, wanted = with_gradients(run, inputs, "sdpa"), with_gradients(run, wide, "reference")
    assert got[0].dtype == dtype
    assert_near(got, wanted, TOLERANCES[dtype])


def test_one_number_at_a_time() -> None:
    q, k, v = draw(3, 5)
    y = attention(q, k, v, backend="reference")
    for t in range(3):
        scores = [float((q[1, t, 2] * k[1, s, 2]).sum()) / math.sqrt(6) for s in range(2 + t + 1)]
        total = sum(math.exp(score) for score in scores)
        for i in range(4):
            mean = sum(math.exp(score) * float(v[1, s, 2, i]) for s, score in enumerate(scores)) / total
            assert float(y[1, t, 2, i]) == pytest.approx(mean, abs=1e-13)


@each_backend
@pytest.mark.parametrize(("queries", "keys"), SIZES, ids=str)
def test_gradients_are_those_of_finite_differences(queries: int, keys: int, backend: str) -> None:
    inputs = [tensor.requires_grad_() for tensor in draw(queries, keys)]
    assert torch.autograd.gradcheck(lambda *tensors: run(tensors, backend), inputs, atol=1e-6, fast_mode=True)


@each_backend
def test_queries_against_all_keys_so_far_are_the_whole(backend: str) -> None:
    q, k, v = draw(9, 9)
    (whole,) = run((q, k, v), backend)
    pieces = [run((q[:, a:b], k[:, :b], v[:, :b]), backend)[0] for a, b in ((0, 4), (4, 5), (5, 9))]
    assert_near([torch.cat(pieces, dim=1)], [whole], 1e-13)


@each_backend
@pytest.mark.parametrize("shared", [None, 0, 1, 2], ids=["none", "queries", "keys", "values"])
def test_lanes_under_vmap_are_lone_runs_whatever_they_share(shared: int | None, backend: str) -> None:
    lanes = [draw(5, 9) for _ in range(3)]
    inputs = [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]
    in_dims = tuple(None if place == shared else 0 for place in range(3))
    if shared is not None:
        inputs[shared] = inputs[shared][0]
    leaves = [tensor.requires_grad_() for tensor in inputs]
    together = torch.func.vmap(lambda *tensors: run(tensors, backend), in_dims=in_dims)(*leaves)
    alone = [
        run([leaf if place == shared else leaf[lane] for place, leaf in enumerate(leaves)], backend)[0]
        for lane in range(3)
    ]
    got = [*together, *torch.autograd.grad(together[0].square().sum(), leaves)]
    wanted = [torch.stack(alone), *torch.autograd.grad(torch.stack(alone).square().sum(), leaves)]
    assert_near(got, wanted, 1e-12)


def test_what_does_not_fit_is_named() -> None:
    q, k, v = draw(5, 9)
    with pytest.raises(ValueError, match=r"v must be \[B, S, H, V\] = \[2, 9, 3, 4\], got \[2, 8, 3, 4\]"):
        attention(q, k, v[:, 1:])
    with pytest.raises(ValueError, match="4 keys for 5 queries; give a key for each query"):
        attention(q, k[:, :4], v[:, :4])
    with pytest.raises(ValueError, match="unknown backend 'chunk'; use auto, reference or sdpa"):
        attention(q, k, v, backend="chunk")  # type: ignore[arg-type]
