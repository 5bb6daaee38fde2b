"""The polar factor of a matrix that may lack rank, with a gradient that stays finite.

Legend: … any leading axes, K rows, V columns, M = min(K, V).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SMALLEST = 1e-3
"""Singular values up to this part of ‖C‖_F count as zero, as in arXiv 2607.19390's code (eigenvalues up to 1e-6)."""

CLOSEST = 0.01
"""Least difference of a kept and an unkept eigenvalue in the gradient, in units of the threshold."""


def polar(matrix_KV: Tensor) -> Tensor:
    """U Vᵀ over the singular values above `SMALLEST` ‖C‖_F of `matrix [..., K, V]` C = U Σ Vᵀ; zeros for zeros,
    NaN for what is not finite.

    By eigenvectors of the smaller gram matrix, in float64. Autograd through them would divide by differences of
    eigenvalues, which are zero between directions not yet written. This gradient divides by sums of kept
    singular values, at most 1 / (`SMALLEST` ‖C‖_F), and by differences of a kept and an unkept eigenvalue. It is
    exact, unless those two are closer than a hundredth of the threshold between them: they count as that far
    apart, which keeps the gradient finite.
    """
    if matrix_KV.shape[-2] < matrix_KV.shape[-1]:
        return polar(matrix_KV.transpose(-1, -2)).transpose(-1, -2)
    factor_KV: Tensor = _Polar.apply(matrix_KV)[0]
    return factor_KV


class _Polar(torch.autograd.Function):
    """`C [..., K, M]`, K >= M, to C h(Cᵀ C), with h(λ) = 1/√λ, or 0 where λ is not kept.

    Also puts out, for the gradient, eigenvectors as columns, eigenvalues, h of them, and the floor.
    """

    @staticmethod
    def forward(matrix_KM: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        wide_KM = matrix_KM.double()
        gram_MM = wide_KM.transpose(-1, -2) @ wide_KM
        # eigh raises for one matrix that is not finite, and would take every other lane down with it.
        finite_11 = gram_MM.isfinite().all(dim=-1, keepdim=True).all(dim=-2, keepdim=True)
        gram_MM = torch.where(finite_11, gram_MM, 0)
        values_M, basis_MM = torch.linalg.eigh(gram_MM)
        floor_1 = SMALLEST**2 * gram_MM.diagonal(dim1=-2, dim2=-1).sum(dim=-1, keepdim=True)
        kept_M = values_M > floor_1
        h_M = torch.where(kept_M, values_M, 1).rsqrt() * kept_M
        factor_KM = wide_KM @ (basis_MM * h_M.unsqueeze(-2)) @ basis_MM.transpose(-1, -2)
        return factor_KM.to(matrix_KM.dtype), basis_MM, values_M, h_M, floor_1

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient_KM: Tensor, *_: Tensor) -> Tensor:
        matrix_KM, basis_MM, values_M, h_M, floor_1 = ctx.saved_tensors
        g_KM, wide_KM, rows_MM = gradient_KM.double(), matrix_KM.double(), basis_MM.transpose(-1, -2)
        # d h(G) = V (D ∘ Vᵀ dG V) Vᵀ with D the divided differences of h (Daleckii and Krein).
        inner_MM = basis_MM @ (
            _differences(values_M, h_M, floor_1) * (rows_MM @ wide_KM.mT @ g_KM @ basis_MM)
        )
        gram_MM = inner_MM @ rows_MM
        back_KM: Tensor = g_KM @ (basis_MM * h_M.unsqueeze(-2)) @ rows_MM + wide_KM @ (gram_MM + gram_MM.mT)
        return back_KM.to(gradient_KM.dtype)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], matrix: Tensor) -> tuple[Any, tuple[int, ...]]:
        assert in_dims[0] is not None
        return _Polar.apply(matrix.movedim(in_dims[0], 0)), (0, 0, 0, 0, 0)


def _differences(values_M: Tensor, h_M: Tensor, floor_1: Tensor) -> Tensor:
    """(h_i − h_j) / (λ_i − λ_j), in the form that its pair of directions leaves finite."""
    one_M1, other_1M = h_M.unsqueeze(-1), h_M.unsqueeze(-2)
    both_MM = one_M1 * other_1M > 0
    # Both kept: h_i − h_j over λ_i − λ_j is −1 / (σ_i σ_j (σ_i + σ_j)).
    sum_MM = torch.where(both_MM, one_M1 + other_1M, 1)
    kept_MM = -((one_M1 * other_1M) ** 2) / sum_MM
    # One kept, the one with the greater eigenvalue; none kept leaves 0 over the floor, or over 1 for zeros.
    apart_MM = (values_M.unsqueeze(-1) - values_M.unsqueeze(-2)).abs()
    apart_MM = torch.maximum(apart_MM, torch.where(floor_1 > 0, CLOSEST * floor_1, 1).unsqueeze(-1))
    return torch.where(both_MM, kept_MM, (one_M1 - other_1M).abs() / apart_MM)
