"""The backward kernels of `kernels.delta_rule.tiles`.

Legend: L steps of a chunk, J steps of a token, M its tokens (a tile of them), K key width, W a block of value width.

With what step i wrote, k_i u_iᵀ, u = β (v − h), h_i = e^{G_i} Sᵀ k_i + Σ_{j<i} e^{G_i − G_j} (k_i·k_j) u_j, a key reads
h as a query reads o. Let Y be the gradient of u with all that later steps make of it, (I + A)ᵀ Y = the gradient of
u by outputs and the chunk's end. Then dv = β Y, dβ = Y·u / β, and h has the gradient −dv: dq, the reading part of dk,
and the writing part of dk for both are those of plain linear attention (`kernels.ssd.tiles_backward`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.delta_rule.tiles_forward import load_step_decays, load_strengths
from statelab.kernels.dot import dot, turned
from statelab.kernels.steps import (
    decay_from_to,
    from_log,
    load_decays,
    load_rows,
    load_steps,
    store_rows,
    store_steps,
)


@triton.jit
def ends_kernel(  # type: ignore[no-untyped-def]
    do_ptr, dlast_ptr, q_ptr, k_ptr, decay_ptr, beta_ptr, inverse_ptr, written_ptr,
    ends_ptr, dv_ptr, dbeta_ptr, dstate_ptr,
    time, heads, chunks, blocks, scale,
    do_b, do_t, do_h, q_b, q_t, q_h, k_b, k_t, k_j, k_h,
    decay_b, decay_t, decay_h, beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, HAS_DLAST: tl.constexpr, HAS_STATE: tl.constexpr,
    PRECISION: tl.constexpr, J: tl.constexpr, TOKENS: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of value width): walks back for the gradient of the state at every chunk's end, and
    of v and β, which it goes through."""
    sequence, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, head, start = sequence // heads, sequence % heads, block * W
    width = VALUES - start
    do_ptr += row * do_b + head * do_h + start
    q_ptr += row * q_b + head * q_h
    k_ptr += row * k_b + head * k_h
    decay_ptr += row * decay_b + head * decay_h
    beta_ptr += row * beta_b + head * beta_h
    written_ptr += (row * time * J * heads + head) * VALUES + start
    dv_ptr += (row * time * J * heads + head) * VALUES + start
    dbeta_ptr += (row * time * J * heads + head) * blocks + block
    ends_ptr += sequence * chunks * KEYS * VALUES + start
    inverse_ptr += sequence * chunks * L * L
    state_at = sequence * KEYS * VALUES + start
    step, token = tl.arange(0, L), tl.arange(0, M)
    seen = token[None, :] >= step[:, None] // J
    transposed = step[:, None] + step[None, :] * L

    dstate = tl.zeros([K, W], tl.float32)
    if HAS_DLAST:
        dstate = load_steps(dlast_ptr + state_at, VALUES, KEYS, width, K, W)
    for back in range(tl.cast(chunks, tl.int64)):
        c = chunks - 1 - back
        first = c * TOKENS
        tokens = tl.minimum(time - first, TOKENS)
        inside = step // J < tokens
        store_steps(ends_ptr + c * KEYS * VALUES, dstate, VALUES, KEYS, width, K, W)
        cum = load_step_decays(decay_ptr + first * decay_t, decay_t, tokens, L, J)
        cum_read, total = load_decays(decay_ptr + first * decay_t, decay_t, tokens, M)
        q = load_steps(q_ptr + first * q_t, q_t, tokens, KEYS, M, K)
        do = load_steps(do_ptr + first * do_t, do_t, tokens, width, M, W)
        k = load_rows(k_ptr + first * k_t, step // J * k_t + step % J * k_j, inside, KEYS, K)
        beta = load_strengths(beta_ptr + first * beta_t, step // J * beta_t + step % J * beta_j, inside)
        inverse_t = tl.load(inverse_ptr + c * L * L + transposed).to(tl.float32)
        steps_at = first * J * heads * VALUES
        written = load_rows(written_ptr + steps_at, step * heads * VALUES, inside, width, W)

        mix_t = dot(k, turned(q, PRECISION), PRECISION) * decay_from_to(cum[:, None], cum_read[None, :], seen)
        to_end = from_log(total - cum)[:, None]
        dwritten = scale * dot(mix_t, do, PRECISION) + to_end * dot(k, dstate, PRECISION)
        dwritten = dot(inverse_t, dwritten, PRECISION)
        dbeta = tl.sum(dwritten * written, axis=1) / tl.where(inside, beta, 1.0)
        tl.store(dbeta_ptr + (first * J + step) * heads * blocks, dbeta, mask=inside)
        dv = beta[:, None] * dwritten
        store_rows(dv_ptr + steps_at, dv, step * heads * VALUES, inside, width, W)
        dstate = from_log(total) * dstate + dot(
            turned(q, PRECISION), (scale * from_log(cum_read))[:, None] * do, PRECISION
        )
        dstate -= dot(turned(k, PRECISION), from_log(cum)[:, None] * dv, PRECISION)
    if HAS_STATE:
        store_steps(dstate_ptr + state_at, dstate, VALUES, KEYS, width, K, W)


@triton.jit
def gradients_kernel(  # type: ignore[no-untyped-def]
    do_ptr, q_ptr, k_ptr, decay_ptr, written_ptr, dv_ptr, starts_ptr, ends_ptr, dq_ptr, dk_ptr, ddecay_ptr,
    time, heads, chunks, blocks, scale,
    do_b, do_t, do_h, q_b, q_t, q_h, k_b, k_t, k_j, k_h, decay_b, decay_t, decay_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, PRECISION: tl.constexpr, J: tl.constexpr, TOKENS: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads · chunks, blocks of value width): one part of dq, dk and the decays' gradient each."""
    place, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence, first = place // chunks, place % chunks * TOKENS
    row, head, start = sequence // heads, sequence % heads, block * W
    width = VALUES - start
    tokens = tl.minimum(time - first, TOKENS)
    step, token = tl.arange(0, L), tl.arange(0, M)
    inside = step // J < tokens
    steps_at = ((row * time + first) * J * heads + head) * VALUES + start
    part, part_t = ((row * time + first) * heads + head) * blocks + block, heads * blocks
    step_part = ((row * time + first) * J * heads + head) * blocks + block

    decay_ptr += row * decay_b + first * decay_t + head * decay_h
    cum = load_step_decays(decay_ptr, decay_t, tokens, L, J)
    cum_read, total = load_decays(decay_ptr, decay_t, tokens, M)
    k_ptr += row * k_b + first * k_t + head * k_h
    k = load_rows(k_ptr, step // J * k_t + step % J * k_j, inside, KEYS, K)
    q = load_steps(q_ptr + row * q_b + first * q_t + head * q_h, q_t, tokens, KEYS, M, K)
    do_ptr += row * do_b + first * do_t + head * do_h + start
    do = load_steps(do_ptr, do_t, tokens, width, M, W)
    written = load_rows(written_ptr + steps_at, step * heads * VALUES, inside, width, W)
    dread = -load_rows(dv_ptr + steps_at, step * heads * VALUES, inside, width, W).to(tl.float32)
    held = load_steps(starts_ptr + place * KEYS * VALUES + start, VALUES, KEYS, width, K, W)

    # Each product of two steps is made once as [i, j] and once as [j, i], see `kernels.ssd.tiles_backward`.
    seen = token[:, None] >= step[None, :] // J
    dmix = dot(do, turned(written, PRECISION), PRECISION) * decay_from_to(
        cum[None, :], cum_read[:, None], seen
    )
    dq = dot(dmix, k, PRECISION) + from_log(cum_read)[:, None] * dot(do, turned(held, PRECISION), PRECISION)
    dq *= scale
    store_steps(dq_ptr + part * KEYS, dq, part_t * KEYS, tokens, KEYS, M, K)
    # A query stands on its token's first step, where the sum over later steps is read.
    on_step = step[:, None] == token[None, :] * J
    own = tl.sum(tl.where(on_step, tl.sum(q * dq, axis=1)[None, :], 0.0), axis=1)

    before = step[:, None] > step[None, :]
    dmix_k = dot(dread, turned(written, PRECISION), PRECISION) * decay_from_to(
        cum[None, :], cum[:, None], before
    )
    dk = dot(dmix_k, k, PRECISION) + from_log(cum)[:, None] * dot(dread, turned(held, PRECISION), PRECISION)
    own += tl.sum(k * dk, axis=1)

    seen_t = token[None, :] >= step[:, None] // J
    dmix_t = dot(written, turned(do, PRECISION), PRECISION) * decay_from_to(
        cum[:, None], cum_read[None, :], seen_t
    )
    after = step[:, None] < step[None, :]
    dmix_k_t = dot(written, turned(dread, PRECISION), PRECISION) * decay_from_to(
        cum[:, None], cum[None, :], after
    )
    dk_write = scale * dot(dmix_t, q, PRECISION) + dot(dmix_k_t, k, PRECISION)
    own -= tl.sum(k * dk_write, axis=1)

    dend = load_steps(ends_ptr + place * KEYS * VALUES + start, VALUES, KEYS, width, K, W)
    dk_end = from_log(total - cum)[:, None] * dot(written, turned(dend, PRECISION), PRECISION)
    passing = tl.sum(k * dk_end, axis=1)
    passed = from_log(total) * tl.sum(tl.sum(held.to(tl.float32) * dend, axis=1), axis=0)
    ddecay = tl.cumsum(own, axis=0, reverse=True) + (tl.cumsum(passing, axis=0) - passing) + passed
    tl.store(ddecay_ptr + part + step // J * part_t, ddecay, mask=inside & (step % J == 0))
    store_rows(dk_ptr + step_part * KEYS, dk + dk_write + dk_end, step * part_t * KEYS, inside, KEYS, K)
