"""Newton-Schulz iterations X ← X (a I + b A + c A²), A = Xᵀ X, of one matrix in registers, and their gradients.

The j-th matrix is kept as U = X / aʲ, so that U ← U + U (β A + γ A²) with A = Uᵀ U, β = b a^(2j−1), γ = c a^(4j−1): the
sum starts from U as it lies there, with nothing multiplied. The last of the iterations is never made on the matrix:
its product with a vector takes products with vectors alone.
Gradients are the exact ones of the iteration, checked against autograd in float64. Legend as in `tiles`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.orthogonal_read.memory import (
    load_fragments,
    store_fragments,
)
from statelab.kernels.orthogonal_read.tiles import (
    add_outer,
    combine,
    operand,
    parts_of,
    scaled,
    symmetric_operand,
    symmetric_times,
    times_transposed,
    times_vector,
    transposed,
    vector_times,
)

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


@triton.jit
def iterate(u, beta, gamma, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """One iteration on a matrix; SQUARE if γ is not 0."""
    left = operand(u, FORMAT)
    turned = transposed(left, N)
    gram = symmetric_times(turned, turned, (), N, FORMAT)
    return times_transposed(left, _step(gram, beta, gamma, SQUARE, N, FORMAT), u, N, FORMAT)


@triton.jit
def _step(gram, beta, gamma, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """The operand β A + γ A²."""
    if SQUARE:
        half = symmetric_operand(gram, N, FORMAT)
        step = combine(beta, gram, gamma, symmetric_times(half, half, (), N, FORMAT))
    else:
        step = scaled(beta, gram)
    return symmetric_operand(step, N, FORMAT)


@triton.jit
def _both_ways(left, right, room, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """L Rᵀ + R Lᵀ; `room` takes two operands."""
    if parts_of(FORMAT) == 1 or not SQUARE:
        total = symmetric_times(left, right, (), N, FORMAT)
        total = symmetric_times(right, left, total, N, FORMAT)
    else:
        # By way of memory, and in a loop: Triton's compiler takes two thirds of the time, whose passes look back over
        # all that a product is made of, and registers have no room for both.
        STORED: tl.constexpr = N * N * 256 * parts_of(FORMAT)
        tl.debug_barrier()
        store_fragments(room, left)
        store_fragments(room + STORED, right)
        tl.debug_barrier()
        total = ()
        for _ in tl.static_range(N * N):
            total = total + (tl.zeros([16, 16], tl.float32),)
        for way in range(2):
            one = load_fragments(room + way * STORED, N * N * parts_of(FORMAT))
            other = load_fragments(room + (1 - way) * STORED, N * N * parts_of(FORMAT))
            total = symmetric_times(one, other, total, N, FORMAT)
    return total


@triton.jit
def iterate_backward(
    r, place, room, beta, gamma, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr
):
    """The gradient R of an iteration's result to that of its matrix U, whose operand lies at `place`.

    R ← R + R (β A + γ A²) + U (β W + γ (W A + A W)),    W = Rᵀ U + Uᵀ R
    """
    # The order is that which leaves the fewest numbers alive, for registers' sake.
    turned = transposed(load_fragments(place, N * N * parts_of(FORMAT)), N)
    gram = symmetric_times(turned, turned, (), N, FORMAT)
    above = operand(r, FORMAT)
    out = times_transposed(above, _step(gram, beta, gamma, SQUARE, N, FORMAT), r, N, FORMAT)
    above = transposed(above, N)
    both = _both_ways(above, turned, room, SQUARE, N, FORMAT)
    if SQUARE:
        half = symmetric_operand(gram, N, FORMAT)
        across = symmetric_operand(both, N, FORMAT)
        both = combine(beta, both, gamma, _both_ways(across, half, room, SQUARE, N, FORMAT))
    else:
        both = scaled(beta, both)
    # Loaded again, from the nearest cache, rather than kept.
    tl.debug_barrier()
    left = load_fragments(place, N * N * parts_of(FORMAT))
    return times_transposed(left, symmetric_operand(both, N, FORMAT), out, N, FORMAT)


@triton.jit
def last_read(x, q, a, b, c, SQUARE: tl.constexpr, N: tl.constexpr):
    """X̂ᵀ q with X̂ = a X + b X A + c X A²."""
    once = vector_times(q, x, N)
    twice = vector_times(times_vector(x, once, N), x, N)
    out = combine(a, once, b, twice)
    if SQUARE:
        thrice = vector_times(times_vector(x, twice, N), x, N)
        out = combine(1.0, out, c, thrice)
    return out


@triton.jit
def last_read_backward(x, q, g, a, b, c, SQUARE: tl.constexpr, N: tl.constexpr):
    """From the gradient g of `last_read`, the gradients of X and of q."""
    once = vector_times(q, x, N)
    back_once = times_vector(x, once, N)
    g_once = times_vector(x, g, N)
    g_twice = vector_times(g_once, x, N)
    g_thrice = times_vector(x, g_twice, N)
    along = combine(a, g, b, g_twice)
    dq = combine(a, g_once, b, g_thrice)
    # b (g₁ w₁ᵀ + w₂ gᵀ), with what shares a vector put together.
    columns_g = scaled(b, back_once)
    columns_once = scaled(b, g_once)
    if SQUARE:
        twice = vector_times(back_once, x, N)
        back_twice = times_vector(x, twice, N)
        g_fourth = vector_times(g_thrice, x, N)
        along = combine(1.0, along, c, g_fourth)
        dq = combine(1.0, dq, c, times_vector(x, g_fourth, N))
        columns_g = combine(1.0, columns_g, c, back_twice)
        columns_once = combine(1.0, columns_once, c, g_thrice)
    r = outer(q, along, N)
    r = add_outer(r, columns_g, g, N)
    r = add_outer(r, columns_once, once, N)
    if SQUARE:
        r = add_outer(r, scaled(c, g_once), twice, N)
        r = add_outer(r, scaled(c, back_once), g_twice, N)
    return r, dq


@triton.jit
def outer(column, row, N: tl.constexpr):
    """column rowᵀ."""
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            out = out + (column[i][:, None] * row[j][None, :],)
    return out
