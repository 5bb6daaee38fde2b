"""The orthogonal read's Triton kernels beside the definition in float64: what their tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from statelab.kernels.orthogonal_read import COEFFICIENTS, Factor, StraightThrough, orthogonal_read

TOLERANCES = {
    ("cubic", "bf16"): 4e-3,
    ("cubic", "fp16"): 5e-4,
    ("cubic", "tf32"): 5e-4,
    ("cubic", "bf16x3"): 3e-5,
    ("quintic", "bf16x3"): 2e-3,
    ("quintic", "bf16x6"): 2e-4,
}
"""Largest ‖error‖ / ‖tensor‖ of the read, the last memory and every gradient, rank-deficient first steps included."""

MANY = 16
"""Iterations beyond which a bound is this many times as wide: 17 lift singular values, and rounding with them, up to
985 times, 5 of them up to 7.6."""

Case = tuple[int, int, int, Factor, int, StraightThrough, str]
"""Time, widths, factor, iterations, straight-through half, precision."""


def bound(case: Case) -> float:
    """The largest error that a case may have."""
    most = TOLERANCES.get((case[3], case[6]), 1e-5)
    return MANY * most if case[4] > MANY else most


def draw(time: int, K: int, V: int, heads: int = 3) -> list[Tensor]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    decay, gain = -normal(2, time, heads).exp() / 4, -normal(2, time, heads).abs()
    shapes = [(2, time, heads, K), (2, time, heads, K), (2, time, heads, V)]
    return [*(normal(*shape) for shape in shapes), decay, gain, normal(2, heads, K, V)]


def defined(
    inputs: Sequence[Tensor], factor: Factor, iterations: int, straight_through: StraightThrough
) -> tuple[Tensor, Tensor]:
    q, k, v, decay, gain, memory = inputs
    reads = []
    for t in range(q.shape[1]):
        written = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        memory = decay[:, t].exp()[..., None, None] * memory + gain[:, t].exp()[..., None, None] * written
        reads.append(
            orthogonal_read(memory, q[:, t], iterations, factor=factor, straight_through=straight_through)
        )
    return torch.stack(reads, dim=1), memory


def with_gradients(
    outputs: tuple[Tensor, ...], inputs: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    loss = sum((out * w.to(out)).sum() for out, w in zip(outputs, weights, strict=True))
    assert isinstance(loss, Tensor)
    return [*outputs, *torch.autograd.grad(loss, inputs)]


def errors(case: Case, device: str, change: Any = None) -> list[float]:
    time, K, V, factor, iterations, straight, precision = case
    from statelab.kernels.orthogonal_read.scan import orthogonal_scan

    torch.manual_seed(0)
    # Interpreted heads take their time.
    heads = 1 if device == "cpu" else 3
    drawn = [tensor.float().to(device) for tensor in draw(time, K, V, heads)]
    if change:
        change(drawn)
    wide = [tensor.double().requires_grad_() for tensor in drawn]
    outputs = defined(wide, factor, iterations, straight)
    weights = [torch.randn_like(out) for out in outputs]
    wanted = with_gradients(outputs, wide, weights)
    inputs = [tensor.requires_grad_() for tensor in drawn]
    made = orthogonal_scan(*inputs, list(COEFFICIENTS[factor]), iterations, straight, precision)
    got = with_gradients(made[:2], inputs, weights)
    return [
        float((a.double() - b).detach().norm() / b.detach().norm().clamp_min(1e-12))
        for a, b in zip(got, wanted, strict=True)
    ]
