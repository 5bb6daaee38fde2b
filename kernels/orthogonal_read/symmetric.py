"""Symmetric matrices as results and as operands of products. Legend as in `tiles`."""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED
from statelab.kernels.orthogonal_read.tiles import operand, row_of, tile_times, transposed_tile

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


@triton.jit
def _copied(row):
    """A row of tiles in registers of its own.

    A matrix unit takes a left operand from four neighbouring registers in one order, a right one from two in another.
    What is both lies as the latter, and the assembler makes the former of it once for every product, four moves for
    each: as many cycles as the product takes. It does not know that nothing is added here, so one copy does for all.
    """
    out = ()
    for k in tl.static_range(len(row)):
        if INTERPRETED or row[k].dtype == tl.float32:
            out = out + (row[k],)
        else:
            zero = tl.program_id(1).to(tl.int16)  # Grids of these kernels have one axis.
            copy = tl.inline_asm_elementwise(
                "xor.b32 $0, $1, $2;", "=r,r,r", [row[k], zero], dtype=row[k].dtype, is_pure=True, pack=2
            )
            out = out + (copy,)
    return out


@triton.jit
def symmetric_times(left, right, start, N: tl.constexpr, FORMAT: tl.constexpr):
    """As `times_transposed` where the sum is symmetric: tiles below the diagonal are not computed, and hold their
    mirror images' numbers untransposed. For `symmetric_operand`."""
    out = ()
    for i in tl.static_range(N):
        row = _copied(row_of(left, i, N))
        for j in tl.static_range(N):
            if i > j:
                out = out + (out[j * N + i],)
            else:
                mine = () if len(start) == 0 else (start[i * N + j],)
                out = out + (tile_times(row, right, mine, j, N, FORMAT),)
    return out


@triton.jit
def symmetric_sum(left, right, N: tl.constexpr, FORMAT: tl.constexpr):
    """L Rᵀ + R Lᵀ of two operands, as `symmetric_times`. Row by row, since a row that is done leaves its registers."""
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(i):
            out = out + (out[j * N + i],)
        half = ()
        row = _copied(row_of(left, i, N))
        for j in tl.static_range(i, N):
            half = half + (tile_times(row, right, (), j, N, FORMAT),)
        row = _copied(row_of(right, i, N))
        for j in tl.static_range(i, N):
            out = out + (tile_times(row, left, (half[j - i],), j, N, FORMAT),)
    return out


@triton.jit
def upper(x, N: tl.constexpr):
    """The tiles on and above the diagonal, row by row."""
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(i, N):
            out = out + (x[i * N + j],)
    return out


@triton.constexpr_function
def _within_upper(i, j, n):
    return i * n - i * (i - 1) // 2 + j - i


@triton.jit
def mirrored(x, N: tl.constexpr):
    """The operand of a symmetric matrix, from its parts' tiles on and above the diagonal."""
    HALF: tl.constexpr = N * (N + 1) // 2
    out = ()
    for part in tl.static_range(len(x) // HALF):
        for i in tl.static_range(N):
            for j in tl.static_range(N):
                if i > j:
                    out = out + (transposed_tile(x[part * HALF + _within_upper(j, i, N)]),)
                else:
                    out = out + (x[part * HALF + _within_upper(i, j, N)],)
    return out


@triton.jit
def symmetric_operand(x, N: tl.constexpr, FORMAT: tl.constexpr):
    """The operand of a symmetric matrix, from its tiles on and above the diagonal."""
    return mirrored(operand(upper(x, N), FORMAT), N)
