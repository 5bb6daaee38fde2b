"""Kernels that are sequential in time, each as a function from tensors to tensors, compared with its definition.

Legend: B rows, T time, H heads, G groups, K key or head width, V value width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from statelab.kernels.gru import gru
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.rnn import rnn
from tests.kernels.checks import check_near, with_gradients

TOLERANCES = {"bf16": 3e-2, "tf32": 4e-3, "bf16x3": 2e-4, "bf16x6": 2e-5, "ieee": 2e-5}
"""Largest error of a tensor by the precision of products, in units of its largest entry."""


@dataclass(frozen=True)
class Op:
    """`draw(B, T, H, width, values)` gives inputs, weights from place `weights` on, and last the state;
    inputs at `gates` stay in float32 where others have 16 bits."""

    name: str
    run: Callable[..., tuple[Tensor, Tensor]]
    draw: Callable[[int, int, int, int, int], list[Tensor]]
    weights: int
    gates: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    def inputs(self, *shape: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
        """Inputs of time as slices of wider tensors, as a projection's parts are; weights and state float32."""
        drawn = [tensor.to(device) for tensor in self.draw(*shape)]
        for place, tensor in enumerate(drawn):
            wide = dtype if place < self.weights and place not in self.gates else torch.float32
            if tensor.ndim == 4 and place < self.weights:
                drawn[place] = torch.cat((tensor, tensor), dim=2).to(wide)[:, :, : tensor.shape[2]]
            else:
                drawn[place] = tensor.to(wide)
        return drawn


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def weight(heads: int, width: int) -> Tensor:
    """Of gain below 1: with more, an error of rounding grows from step to step, in any arithmetic."""
    return normal(heads, width, width) * (0.6 / math.sqrt(width))


def draw_rnn(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
    return [normal(B, T, H, K), weight(H, K), normal(B, H, K).tanh()]


def draw_gru(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
    inputs = [normal(B, T, H, K), normal(B, T, H, K), 2 * normal(B, T, H, K)]
    return [*inputs, *(weight(H, K) for _ in range(3)), normal(B, H, K).tanh()]


def draw_m2rnn(groups: int | None) -> Callable[[int, int, int, int, int], list[Tensor]]:
    def draw(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
        q, k = normal(B, T, groups or H, K), normal(B, T, groups or H, K)
        forget = torch.sigmoid(2 * normal(B, T, H))
        return [q, k, normal(B, T, H, V), forget, weight(H, V), normal(B, H, K, V).tanh()]

    return draw


def ungated(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, state: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    return m2rnn(q, k, v, None, w, state, **options)


def draw_ungated(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
    q, k, v, _, w, state = draw_m2rnn(None)(B, T, H, K, V)
    return [q, k, v, w, state]


OPS = {
    "gru": Op("gru", gru, draw_gru, weights=3, gates=(2,)),
    "m2rnn": Op("m2rnn", m2rnn, draw_m2rnn(1), weights=4, gates=(3,)),
    "m2rnn_ungated": Op("m2rnn_ungated", ungated, draw_ungated, weights=3),
    "rnn": Op("rnn", rnn, draw_rnn, weights=1),
}


def compare(
    op: Op, inputs: Sequence[Tensor], tolerance: float, precision: str = "auto", **options: Any
) -> None:
    """The kernel, on memory full of NaN, against the definition in float64."""
    with poisoned():
        got = with_gradients(op, inputs, backend="triton", precision=precision, **options)
    wanted = with_gradients(op, [tensor.double() for tensor in inputs], backend="reference", **options)
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        check_near(op, place, one, other, tolerance)
    for one, given in zip(got[2:], inputs, strict=True):
        assert one.dtype == given.dtype


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh memory is full of NaN, so that an entry that nothing wrote is seen."""
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def launch(
    name: str,
    width: int,
    values: int,
    dtype: torch.dtype,
    precision: str,
    *,
    rows: int = 4,
    time: int = 33,
    heads: int = 2,
) -> None:
    """Forward and backward kernels of an op at one width, launched once each; see `tests.kernels.offline`."""
    inputs = [t.requires_grad_() for t in OPS[name].inputs(rows, time, heads, width, values, dtype=dtype)]
    with patch("statelab.kernels.contract.refusal", lambda tensors: None):
        outputs = OPS[name].run(*inputs, backend="triton", precision=precision, gradient_clip=1.0)
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
