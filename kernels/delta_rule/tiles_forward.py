"""The forward kernels of `kernels.delta_rule.tiles`.

Legend: L steps of a chunk, J steps of a token, M its tokens (a tile of them), K key width, W a block of value width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot, turned
from statelab.kernels.steps import (
    as_logs,
    decay_from_to,
    from_log,
    load_decays,
    load_rows,
    load_steps,
    store_rows,
    store_steps,
)

LEAST_STRENGTH = tl.constexpr(1e-20)
"""β of a step that writes nothing: what it would have written is divided by β in the backward pass."""


@triton.jit
def load_strengths(pointer, offset, inside):  # type: ignore[no-untyped-def]
    """β of each step, never 0 at a true step; 0 past the end."""
    beta = tl.load(pointer + offset, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside & (tl.abs(beta) < LEAST_STRENGTH), LEAST_STRENGTH, beta)


@triton.jit
def load_step_decays(pointer, stride, tokens, L: tl.constexpr, J: tl.constexpr):  # type: ignore[no-untyped-def]
    """Log decays summed up to each step, `[L]`, where only a token's first step decays."""
    step = tl.arange(0, L)
    mask = (step % J == 0) & (step // J < tokens)
    decay = tl.load(pointer + step // J * stride, mask=mask, other=0.0).to(tl.float32)
    return tl.cumsum(as_logs(decay), axis=0)


@triton.jit
def inverse_kernel(  # type: ignore[no-untyped-def]
    k_ptr, decay_ptr, beta_ptr, inverse_ptr,
    time, heads, chunks, k_b, k_t, k_j, k_h, decay_b, decay_t, decay_h, beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, PRECISION: tl.constexpr, J: tl.constexpr, TOKENS: tl.constexpr,
    L: tl.constexpr, K: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads · chunks): (I + A)⁻¹ with A_ij = β_i e^{G_i − G_j} k_i·k_j for i > j, `[L, L]`."""
    place = tl.program_id(0).to(tl.int64)
    sequence, first = place // chunks, place % chunks * TOKENS
    row, head = sequence // heads, sequence % heads
    tokens = tl.minimum(time - first, TOKENS)
    step = tl.arange(0, L)
    inside = step // J < tokens
    k_ptr += row * k_b + first * k_t + head * k_h
    k = load_rows(k_ptr, step // J * k_t + step % J * k_j, inside, KEYS, K)
    beta_ptr += row * beta_b + first * beta_t + head * beta_h
    beta = load_strengths(beta_ptr, step // J * beta_t + step % J * beta_j, inside)
    cum = load_step_decays(
        decay_ptr + row * decay_b + first * decay_t + head * decay_h, decay_t, tokens, L, J
    )
    to, of = step[:, None], step[None, :]
    system = dot(k, turned(k, PRECISION), PRECISION) * decay_from_to(cum[None, :], cum[:, None], to > of)
    system = system * beta[:, None]
    # Blocks of 1, 2, 4 … steps on the diagonal are inverted; of two neighbours, with what joins them,
    # [[P, 0], [O, Q]]⁻¹ = [[P⁻¹, 0], [−Q⁻¹ O P⁻¹, Q⁻¹]]. Nothing grows on the way, as powers of A would.
    inverse = tl.where(to == of, 1.0, 0.0) - tl.where((to // 2 == of // 2), system, 0.0)
    for level in tl.static_range(1, LEVELS):
        size = 2**level
        joining = tl.where((to // (2 * size) == of // (2 * size)) & (to // size != of // size), system, 0.0)
        inverse = inverse - dot(dot(inverse, joining, PRECISION), inverse, PRECISION)
    store_steps(inverse_ptr + place * L * L, inverse, L, L, L, L, L)


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, decay_ptr, beta_ptr, state_ptr, inverse_ptr, o_ptr, last_ptr, written_ptr, starts_ptr,
    time, heads, chunks, scale,
    q_b, q_t, q_h, k_b, k_t, k_j, k_h, v_b, v_t, v_j, v_h,
    decay_b, decay_t, decay_h, beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, HAS_STATE: tl.constexpr, KEEP: tl.constexpr,
    PRECISION: tl.constexpr, J: tl.constexpr, TOKENS: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of value width): walks over the chunks with its block of the state on chip."""
    sequence, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * W
    row, head = sequence // heads, sequence % heads
    width = VALUES - start
    q_ptr += row * q_b + head * q_h
    k_ptr += row * k_b + head * k_h
    v_ptr += row * v_b + head * v_h + start
    decay_ptr += row * decay_b + head * decay_h
    beta_ptr += row * beta_b + head * beta_h
    o_ptr += (row * time * heads + head) * VALUES + start
    written_ptr += (row * time * J * heads + head) * VALUES + start
    starts_ptr += sequence * chunks * KEYS * VALUES + start
    inverse_ptr += sequence * chunks * L * L
    state_at = sequence * KEYS * VALUES + start
    step, token = tl.arange(0, L), tl.arange(0, M)
    seen = token[:, None] >= step[None, :] // J

    state = tl.zeros([K, W], tl.float32)
    if HAS_STATE:
        state = load_steps(state_ptr + state_at, VALUES, KEYS, width, K, W)
    for c in range(tl.cast(chunks, tl.int64)):
        first = c * TOKENS
        tokens = tl.minimum(time - first, TOKENS)
        inside = step // J < tokens
        if KEEP:
            store_steps(starts_ptr + c * KEYS * VALUES, state, VALUES, KEYS, width, K, W)
        cum = load_step_decays(decay_ptr + first * decay_t, decay_t, tokens, L, J)
        cum_read, total = load_decays(decay_ptr + first * decay_t, decay_t, tokens, M)
        q = load_steps(q_ptr + first * q_t, q_t, tokens, KEYS, M, K)
        k = load_rows(k_ptr + first * k_t, step // J * k_t + step % J * k_j, inside, KEYS, K)
        v = load_rows(v_ptr + first * v_t, step // J * v_t + step % J * v_j, inside, width, W)
        beta = load_strengths(beta_ptr + first * beta_t, step // J * beta_t + step % J * beta_j, inside)
        inverse = load_steps(inverse_ptr + c * L * L, L, L, L, L, L)

        missing = v - from_log(cum)[:, None] * dot(k, state, PRECISION)
        written = dot(inverse, beta[:, None] * missing, PRECISION)
        if KEEP:
            written_at = written_ptr + first * J * heads * VALUES
            store_rows(written_at, written, step * heads * VALUES, inside, width, W)
        mix = dot(q, turned(k, PRECISION), PRECISION) * decay_from_to(cum[None, :], cum_read[:, None], seen)
        o = dot(mix, written, PRECISION) + from_log(cum_read)[:, None] * dot(q, state, PRECISION)
        store_steps(o_ptr + first * heads * VALUES, scale * o, heads * VALUES, tokens, width, M, W)
        added = dot(turned(k, PRECISION), from_log(total - cum)[:, None] * written, PRECISION)
        state = from_log(total) * state + added
    store_steps(last_ptr + state_at, state, VALUES, KEYS, width, K, W)
