"""Reading a matrix memory through its orthogonal factor.

Legend: … any leading axes, K key width, V value width.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from statelab.kernels.contract import check_shapes
from statelab.kernels.orthogonal_read.polar import polar

Factor = Literal["cubic", "quintic", "polar"]
StraightThrough = Literal["off", "forward", "backward"]
ReadPrecision = Literal["auto", "bf16", "fp16", "tf32", "bf16x3", "bf16x6"]
"""Operands of a Triton kernel's iterations, see `kernels.precision`; matrices and sums are float32. Median relative
error of a step's read, and of gradients, against float64 (H200, mLSTM memories of width 48 from the first step on):

| | cubic: read | gradients |
|---|---|---|
| bf16 | 3.3e-4 | 3e-4 to 8e-4 |
| fp16 | 4.1e-5 | 4e-5 to 1e-4 |
| tf32 | 4.1e-5 | 4e-5 to 1e-4 |
| bf16x3 | 9e-7 | 3e-6 |

fp16 is as exact as tf32 and as fast as bf16: matrices are normed, their entries at most 1, and a gradient is normed
before it goes back through the iterations. So tf32's mantissas are held in fp16, for the cubic and up to `MOST_IN_HALF`
iterations. The quintic lifts small singular values, and rounding with them, 485 times
against 7.6 times (the same rounding emulated in torch; gradients of q, k, v and gates; the larger numbers are of
memories that lack rank):

| | quintic: read | gradients |
|---|---|---|
| bf16 | 9e-3 | 3e-3 to 1e-1 |
| fp16, tf32 | 1.1e-3 | 4e-4 to 1.3e-2 |
| bf16x3 | 3e-5 to 8e-5 | 5e-5 to 2e-4 |

`auto` keeps every gradient within 1e-3 at the least cost, and of what costs the same takes the more exact: fp16 for the
cubic, bf16x3 for the quintic.
"""

MOST_IN_HALF = 16
"""Iterations up to which fp16 resolves matrices that are kept divided by 1.5 at each."""

COEFFICIENTS = {"cubic": (1.5, -0.5, 0.0), "quintic": (3.4445, -4.7750, 2.0315)}
"""(a, b, c) of X ← X (a I + b Xᵀ X + c (Xᵀ X)²)."""


def orthogonal_read(
    memory_KV: Tensor,
    q_K: Tensor,
    iterations: int = 5,
    *,
    factor: Factor = "cubic",
    straight_through: StraightThrough = "off",
) -> Tensor:
    """y = Xᵀ q, `[…, V]`, with X made of `memory [..., K, V]` C by a Newton-Schulz iteration

        X₀ = C / max(‖C‖_F, 1e-6),    X ← X (a I + b Xᵀ X + c (Xᵀ X)²)    (`iterations` times)

    `cubic`: (1.5, −0.5, 0), which takes every singular value towards 1 and leaves singular vectors alone; the
    published orthogonalised read of an mLSTM (arXiv 2607.19390) has 5 iterations of it. `quintic`: (3.4445,
    −4.7750, 2.0315), Muon's (Jordan 2024), which lifts small singular values faster and then keeps them between
    about 0.7 and 1.2 rather than at 1. `polar`: X is their limit U Vᵀ on the range of C = U Σ Vᵀ,
    `iterations` unused; see `polar` for what its gradient is.
    Gradients flow through all of it, the norm too; `straight_through` lets one half alone see X: "forward", the
    output, while the gradient takes C's way as if y were Cᵀ q; "backward", the gradient, with Cᵀ q put out.
    The gradient of q is Xᵀ's or Cᵀ's transpose, whichever made the output. (arXiv 2607.19390, section 2:
    ns5_fwd, ns5_bwd.)
    Raises ValueError for shapes that do not fit, an unknown factor or half, and negative iterations.
    """
    lead = " ".join(f"batch{axis}" for axis in range(q_K.dim() - 1))
    check_shapes("orthogonal_read", q=(q_K, f"{lead} K"), memory=(memory_KV, f"{lead} K V"))
    check_read(factor, iterations, straight_through)
    if straight_through == "forward":
        raw_V = _times(q_K.detach(), memory_KV)
        return _factored(memory_KV.detach(), q_K, iterations, factor) + (raw_V - raw_V.detach())
    if straight_through == "backward":
        factored_V = _factored(memory_KV, q_K.detach(), iterations, factor)
        return _times(q_K, memory_KV.detach()) + (factored_V - factored_V.detach())
    return _factored(memory_KV, q_K, iterations, factor)


def choose_read_precision(factor: str, precision: str, iterations: int = 5) -> str:
    """The precision's name, other than auto. Raises ValueError for an unknown one."""
    if precision not in get_args(ReadPrecision):
        known = ", ".join(get_args(ReadPrecision))
        raise ValueError(f"orthogonal_read: unknown read_precision {precision!r}; use {known}")
    if precision != "auto":
        return precision
    if factor != "cubic":
        return "bf16x3"
    return "fp16" if iterations <= MOST_IN_HALF else "bf16"


def check_read(factor: str, iterations: int, straight_through: str) -> None:
    """Raise ValueError for an unknown factor or half, and for negative iterations."""
    if factor not in (*COEFFICIENTS, "polar"):
        raise ValueError(f"orthogonal_read: unknown factor {factor!r}; use cubic, quintic or polar")
    if straight_through not in ("off", "forward", "backward"):
        raise ValueError(
            f"orthogonal_read: unknown straight_through {straight_through!r}; use off, forward or backward"
        )
    if iterations < 0:
        raise ValueError(f"orthogonal_read: iterations must be >= 0, got {iterations}")


def _times(q_K: Tensor, x_KV: Tensor) -> Tensor:
    # [1, K] @ [K, V] -> [1, V]
    return (q_K.unsqueeze(-2) @ x_KV).squeeze(-2)


def _factored(memory_KV: Tensor, q_K: Tensor, iterations: int, factor: Factor) -> Tensor:
    if factor == "polar":
        return _times(q_K, polar(memory_KV))
    a, b, c = COEFFICIENTS[factor]
    x_KV = memory_KV / torch.linalg.vector_norm(memory_KV, dim=(-2, -1), keepdim=True).clamp_min(1e-6)
    for _ in range(iterations - 1):
        # [V, K] @ [K, V] -> [V, V];  [K, V] @ [V, V] -> [K, V]
        gram_VV = x_KV.transpose(-1, -2) @ x_KV
        step_VV = b * gram_VV + c * gram_VV @ gram_VV if c else b * gram_VV
        x_KV = a * x_KV + x_KV @ step_VV
    # Of the last iteration only its product with q is wanted: products with vectors alone.
    y_1V: Tensor = q_K.unsqueeze(-2) @ x_KV
    if iterations:
        once_1V = (y_1V @ x_KV.transpose(-1, -2)) @ x_KV
        y_1V = a * y_1V + b * once_1V
        if c:
            y_1V = y_1V + c * (once_1V @ x_KV.transpose(-1, -2)) @ x_KV
    return y_1V.squeeze(-2)
