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
    RIGHT,
    load_fragments,
    store_fragments,
)
from statelab.kernels.orthogonal_read.symmetric import (
    mirrored,
    symmetric_operand,
    symmetric_sum,
    symmetric_times,
    upper,
)
from statelab.kernels.orthogonal_read.tiles import (
    add_outer,
    combine,
    operand,
    parts_of,
    scaled,
    times_transposed,
    times_vector,
    transposed,
    vector_times,
)

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


@triton.constexpr_function
def kept_tiles(n, square):
    """Tiles of each part that an iteration keeps for its gradient: of U, of its step, and of A if γ is not 0."""
    return n * n + (2 if square else 1) * (n * (n + 1) // 2)


@triton.constexpr_function
def passing_tiles(n, square):
    """Tiles of each part that pass through memory within an iteration's gradient, see `_both_ways`."""
    return 2 * n * n if square else 0


@triton.jit
def iterate(u, left, beta, gamma, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """One iteration on a matrix whose operand is `left`; SQUARE if γ is not 0. With it come the operands of
    β A + γ A² and, behind it if SQUARE, of A, on and above the diagonal."""
    turned = transposed(left, N)
    gram = symmetric_times(turned, turned, (), N, FORMAT)
    if SQUARE:
        half = operand(upper(gram, N), FORMAT)
        whole = mirrored(half, N)
        step = combine(beta, gram, gamma, symmetric_times(whole, whole, (), N, FORMAT))
    else:
        half = ()
        step = scaled(beta, gram)
    step = operand(upper(step, N), FORMAT)
    return times_transposed(left, mirrored(step, N), u, N, FORMAT), step + half


@triton.jit
def store_iteration(place, left, made, N: tl.constexpr):
    """Keep what `iterate_backward` needs of an iteration: its matrix's operand and what `iterate` made on the way."""
    store_fragments(place, left)
    store_fragments(place + len(left) * 256, made, RIGHT)


@triton.jit
def _both_ways(left, right, room, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """L Rᵀ + R Lᵀ; `room` takes two operands."""
    if parts_of(FORMAT) == 1 or not SQUARE:
        total = symmetric_sum(left, right, N, FORMAT)
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
    """The gradient R of an iteration's result to that of its matrix U; `store_iteration` wrote to `place`.

    R ← R + R (β A + γ A²) + U (β W + γ (W A + A W)),    W = Rᵀ U + Uᵀ R
    """
    # The order is that which leaves the fewest numbers alive, for registers' sake.
    WHOLE: tl.constexpr = N * N * parts_of(FORMAT)
    HALF: tl.constexpr = N * (N + 1) // 2 * parts_of(FORMAT)
    above = operand(r, FORMAT)
    step = mirrored(load_fragments(place + WHOLE * 256, HALF, RIGHT), N)
    out = times_transposed(above, step, r, N, FORMAT)
    above = transposed(above, N)
    both = _both_ways(above, transposed(load_fragments(place, WHOLE), N), room, SQUARE, N, FORMAT)
    if SQUARE:
        half = mirrored(load_fragments(place + (WHOLE + HALF) * 256, HALF, RIGHT), N)
        across = symmetric_operand(both, N, FORMAT)
        both = combine(beta, both, gamma, _both_ways(across, half, room, SQUARE, N, FORMAT))
    else:
        both = scaled(beta, both)
    # Loaded again, from the nearest cache, rather than kept.
    tl.debug_barrier()
    left = load_fragments(place, WHOLE)
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
