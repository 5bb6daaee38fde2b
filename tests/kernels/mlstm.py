"""The Triton mLSTM beside the float64 reference: what its tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.cases import assert_near, run_mlstm, with_gradients
from tests.kernels.recurrent import poisoned

PROGRAMS = pytest.mark.parametrize("programs", ["chunks", "sequences"])

TOLERANCES = {"bf16": 5e-2, "tf32": 3e-2, "bf16x3": 5e-4, "bf16x6": 2e-4, "ieee": 2e-4}
"""Largest error of a tensor, in units of its largest entry. The denominator amplifies errors of n·q."""

WIDTHS = [(16, 16), (32, 32), (47, 48), (48, 47), (64, 64), (128, 128), (7, 9), (64, 16)]


def draw(time: int, K: int, V: int, heads: int = 3, rows: int = 2) -> list[Tensor]:
    """q, k, v, both gates, and a state, in float64."""
    normal: Callable[..., Tensor] = torch.randn
    double = {"dtype": torch.float64}
    q, k = normal(rows, time, heads, K, **double), normal(rows, time, heads, K, **double)
    v = normal(rows, time, heads, V, **double)
    gates = [2 * normal(rows, time, heads, **double), 2 * normal(rows, time, heads, **double) + 3]
    state = [normal(rows, heads, K, V, **double), normal(rows, heads, K, **double)]
    return [q, k, v, *gates, *state, normal(rows, heads, **double)]


def compare(
    inputs: Sequence[Tensor], tolerance: float, dtype: torch.dtype = torch.float32, **options: Any
) -> None:
    """Both from the same rounded inputs; gates and the state stay in float32."""
    rounded = [tensor.to(dtype if place < 3 else torch.float32) for place, tensor in enumerate(inputs)]
    precision = options.pop("precision", "auto")
    with poisoned():
        got = with_gradients(run_mlstm(**options, precision=precision), rounded, "triton")
    wanted = with_gradients(run_mlstm(**options), [tensor.double() for tensor in rounded], "reference")
    assert_near(got, wanted, tolerance)
