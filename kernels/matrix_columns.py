"""The kernels of `kernels.matrix_scan` whose programs take columns of the state: the forward and ∂v, ∂β.

Legend: N sequences (rows · heads) of a program, K keys, W columns (values), J steps of a token. The state is a tile
`[K, N, W]`: threads lie along its last axes and each holds whole columns, so that sums over keys, all that these
kernels need, stay within a thread. Columns go through time without each other.

What a step needs is loaded `AHEAD` iterations early (x_2), made float32 in the next (x_1) and used in the one after
that (x), so that no iteration waits for memory; what is loaded before the first step counts as zeros and changes
nothing. `one` is 1, unknown to the compiler: along an axis that it knows to be dense it would let a thread load,
and then hold, parts of several columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

AHEAD = tl.constexpr(2)


@triton.jit
def sequences_of(sequences, heads, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """This program's sequences as 64-bit numbers, which of them exist, their rows and their heads, `[N]`."""
    sequence = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    return sequence, sequence < sequences, sequence // heads, sequence % heads


@triton.jit
def load_vectors(pointer, start, offset, inside, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """A vector of each sequence, `[N, W]`: from `pointer + start[n] + offset` on, dense."""
    return tl.load(pointer + start[:, None] + offset + tl.arange(0, W)[None, :], inside, 0.0)


@triton.jit
def store_vectors(pointer, vectors, start, offset, inside, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the true part of a vector of each sequence, in the type that `pointer` points to."""
    to = pointer + start[:, None] + offset + tl.arange(0, W)[None, :]
    tl.store(to, vectors.to(pointer.dtype.element_ty), inside)


@triton.jit
def nothing(pointer, N: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Vectors of zeros in float32 and in the type that `pointer` points to."""
    return tl.zeros([N, W], tl.float32), tl.zeros([N, W], pointer.dtype.element_ty)


@triton.jit
def down(vectors):  # type: ignore[no-untyped-def]
    """`[N, W]` along the first axis of a state: `[W, N, 1]`."""
    return tl.trans(vectors)[:, :, None]


@triton.jit(do_not_specialize=["sequences", "time", "one"])
def forward_kernel(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, decay_ptr, beta_ptr, state_ptr, o_ptr, last_ptr, missing_ptr,
    sequences, time, heads, heads_per_group, one, scale,
    q_b, q_t, q_h, k_b, k_t, k_j, k_h, v_b, v_t, v_j, v_h, decay_b, decay_t, decay_h,
    beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, J: tl.constexpr, ERASE: tl.constexpr, HAS_STATE: tl.constexpr,
    KEEP: tl.constexpr, K: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads / N, blocks of columns): walks over the steps, and reads after the last of each token."""
    sequence, there, row, head = sequences_of(sequences, heads, N)
    group, first = head // heads_per_group, tl.program_id(1) * W
    i, j = tl.arange(0, K), first + tl.arange(0, W)
    keys, values = there[:, None] & (i < KEYS)[None, :], there[:, None] & (j < VALUES)[None, :]
    q_start, k_start = row * q_b + group * q_h, row * k_b + group * k_h
    v_start, decay_start = row * v_b + head * v_h + first, row * decay_b + head * decay_h
    beta_start = row * beta_b + head * beta_h
    o_start = (row * time * heads + head) * VALUES + first
    missing_start = (row * time * J * heads + head) * VALUES + first
    of_state = (sequence * KEYS * VALUES)[None, :, None] + i[:, None, None] * VALUES + j[None, None, :] * one
    true = tl.trans(keys)[:, :, None] & values[None, :, :]

    S = tl.zeros([K, N, W], tl.float32)
    if HAS_STATE:
        S = tl.load(state_ptr + of_state, true, 0.0)
    q_1, q_2 = nothing(q_ptr, N, K)
    k_1, k_2 = nothing(k_ptr, N, K)
    v_1, v_2 = nothing(v_ptr, N, W)
    decay_1, decay_2 = tl.zeros([N], tl.float32), tl.zeros([N], decay_ptr.dtype.element_ty)
    if ERASE:
        beta_1, beta_2 = tl.zeros([N], tl.float32), tl.zeros([N], beta_ptr.dtype.element_ty)
    for count in tl.range(0, time * J + AHEAD, num_stages=1):
        early = tl.cast(count, tl.int64)
        token, factor, more = early // J, early % J, early < time * J
        q, q_1 = q_1, q_2.to(tl.float32)
        q_2 = load_vectors(q_ptr, q_start, token * q_t, keys & more & (factor == J - 1), K)
        k, k_1 = k_1, k_2.to(tl.float32)
        k_2 = load_vectors(k_ptr, k_start, token * k_t + factor * k_j, keys & more, K)
        write, v_1 = v_1, v_2.to(tl.float32)
        v_2 = load_vectors(v_ptr, v_start, token * v_t + factor * v_j, values & more, W)
        decay, decay_1 = decay_1, decay_2.to(tl.float32)
        # Where a token's later steps do not decay, 0 is loaded.
        decay_2 = tl.load(decay_ptr + decay_start + token * decay_t, there & more & (factor == 0), 0.0)

        step = early - AHEAD
        S *= tl.exp(decay)[None, :, None]
        key = down(k)
        if ERASE:
            beta, beta_1 = beta_1, beta_2.to(tl.float32)
            beta_2 = tl.load(beta_ptr + beta_start + token * beta_t + factor * beta_j, there & more, 0.0)
            write -= tl.sum(S * key, 0)
            if KEEP:
                store_vectors(
                    missing_ptr, write, missing_start, step * heads * VALUES, values & (step >= 0), W
                )
            write *= beta[:, None]
        S += key * write[None, :, :]
        o = scale * tl.sum(S * down(q), 0)
        read = (step >= 0) & (step % J == J - 1)
        store_vectors(o_ptr, o, o_start, step // J * heads * VALUES, values & read, W)
    tl.store(last_ptr + of_state, S, true)


@triton.jit(do_not_specialize=["sequences", "time", "one"])
def values_kernel(  # type: ignore[no-untyped-def]
    do_ptr, dlast_ptr, q_ptr, k_ptr, decay_ptr, beta_ptr, missing_ptr, dv_ptr, dbeta_ptr, dstate_ptr,
    sequences, time, heads, heads_per_group, one, blocks, scale,
    do_b, do_t, do_h, q_b, q_t, q_h, k_b, k_t, k_j, k_h, decay_b, decay_t, decay_h,
    beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, J: tl.constexpr, ERASE: tl.constexpr, HAS_DLAST: tl.constexpr,
    HAS_STATE: tl.constexpr, K: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads / N, blocks of columns): walks back for the gradients of v, β (a part) and the state."""
    sequence, there, row, head = sequences_of(sequences, heads, N)
    group, first = head // heads_per_group, tl.program_id(1) * W
    i, j = tl.arange(0, K), first + tl.arange(0, W)
    keys, values = there[:, None] & (i < KEYS)[None, :], there[:, None] & (j < VALUES)[None, :]
    q_start, k_start = row * q_b + group * q_h, row * k_b + group * k_h
    do_start, decay_start = row * do_b + head * do_h + first, row * decay_b + head * decay_h
    beta_start = row * beta_b + head * beta_h
    at_start = row * time * J * heads + head
    of_state = (sequence * KEYS * VALUES)[None, :, None] + i[:, None, None] * VALUES + j[None, None, :] * one
    true = tl.trans(keys)[:, :, None] & values[None, :, :]

    D = tl.zeros([K, N, W], tl.float32)
    if HAS_DLAST:
        D = tl.load(dlast_ptr + of_state, true, 0.0)
    q_1, q_2 = nothing(q_ptr, N, K)
    k_1, k_2 = nothing(k_ptr, N, K)
    do_1, do_2 = nothing(do_ptr, N, W)
    decay_1, decay_2 = tl.zeros([N], tl.float32), tl.zeros([N], decay_ptr.dtype.element_ty)
    if ERASE:
        missing_1, missing_2 = nothing(missing_ptr, N, W)
        beta_1, beta_2 = tl.zeros([N], tl.float32), tl.zeros([N], beta_ptr.dtype.element_ty)
    for count in tl.range(0, time * J + AHEAD, num_stages=1):
        early = tl.cast(time, tl.int64) * J - 1 - count
        token, factor, more = early // J, early % J, early >= 0
        read = more & (factor == J - 1)
        q, q_1 = q_1, q_2.to(tl.float32)
        q_2 = load_vectors(q_ptr, q_start, token * q_t, keys & read, K)
        do, do_1 = do_1, scale * do_2.to(tl.float32)
        do_2 = load_vectors(do_ptr, do_start, token * do_t, values & read, W)
        k, k_1 = k_1, k_2.to(tl.float32)
        k_2 = load_vectors(k_ptr, k_start, token * k_t + factor * k_j, keys & more, K)
        decay, decay_1 = decay_1, decay_2.to(tl.float32)
        decay_2 = tl.load(decay_ptr + decay_start + token * decay_t, there & more & (factor == 0), 0.0)

        step = early + AHEAD
        true_step = step < time * J
        D += down(q) * do[None, :, :]
        key = down(k)
        dv = tl.sum(D * key, 0)
        if ERASE:
            beta, beta_1 = beta_1, beta_2.to(tl.float32)
            beta_2 = tl.load(beta_ptr + beta_start + token * beta_t + factor * beta_j, there & more, 0.0)
            missing, missing_1 = missing_1, missing_2
            missing_at = early * heads * VALUES
            missing_2 = load_vectors(missing_ptr, at_start * VALUES + first, missing_at, values & more, W)
            to = dbeta_ptr + (at_start + step * heads) * blocks + tl.program_id(1)
            tl.store(to, tl.sum(dv * missing, 1).to(dbeta_ptr.dtype.element_ty), there & true_step)
            dv *= beta[:, None]
            D -= key * dv[None, :, :]
        store_vectors(dv_ptr, dv, at_start * VALUES + first, step * heads * VALUES, values & true_step, W)
        D *= tl.exp(decay)[None, :, None]
    if HAS_STATE:
        tl.store(dstate_ptr + of_state, D, true)
