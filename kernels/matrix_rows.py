"""The kernels of `kernels.matrix_scan` whose programs take rows of the state: the gradients of q, k and decays.

Legend: N sequences (rows · heads) of a program, R rows (keys), V values, J steps of a token. The state is a tile
`[V, N, R]`, transposed: each thread holds whole rows, so that sums over values stay within it. Rows go through time
without each other, once what every step writes is known, which `kernels.matrix_columns` leaves.

With S̃ the decayed state that a step finds, S = S̃ + k uᵀ, u = β w, what it leaves, D the gradient of S and −∂v that of
what k reads of S̃: ∂q = scale S ∂o, ∂k = D u − S̃ ∂v. The gradient of S̃ is D − k ∂vᵀ, so that its product with S̃, the
gradient of the step's log decay, is ⟨S, D⟩ − k·D u − k·S̃ ∂v; and ⟨S, D⟩ is the same product of the next step plus
q·∂q. So a log decay's gradient is a sum over the steps from its own on, after ⟨S, D⟩ at the end. It starts anew, at 0,
where a state is forgotten; elsewhere its error is float32's rounding of the largest of these terms, so that a decay's
gradient that is much smaller than they are is known less well than by its own size.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.matrix_columns import AHEAD, down, load_vectors, nothing, sequences_of, store_vectors


@triton.jit(do_not_specialize=["sequences", "time", "one"])
def reads_kernel(  # type: ignore[no-untyped-def]
    do_ptr, k_ptr, write_ptr, decay_ptr, beta_ptr, q_ptr, dv_ptr, state_ptr, dq_ptr, dread_ptr, own_ptr,
    sequences, time, heads, heads_per_group, one, blocks, scale,
    do_b, do_t, do_h, q_b, q_t, q_h, k_b, k_t, k_j, k_h, write_b, write_t, write_j, write_h,
    decay_b, decay_t, decay_h, beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, J: tl.constexpr, ERASE: tl.constexpr, HAS_STATE: tl.constexpr,
    V: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads / N, blocks of keys): walks over the steps for ∂q and what reading gives ∂k; `own` is what
    both give a step's log decay, a part."""
    sequence, there, row, head = sequences_of(sequences, heads, N)
    group, first = head // heads_per_group, tl.program_id(1) * R
    i, j = first + tl.arange(0, R), tl.arange(0, V)
    keys, values = there[:, None] & (i < KEYS)[None, :], there[:, None] & (j < VALUES)[None, :]
    q_start, k_start = row * q_b + group * q_h + first, row * k_b + group * k_h + first
    do_start, write_start = row * do_b + head * do_h, row * write_b + head * write_h
    decay_start, beta_start = row * decay_b + head * decay_h, row * beta_b + head * beta_h
    token_start, at_start = row * time * heads + head, row * time * J * heads + head
    of_state = (sequence * KEYS * VALUES)[None, :, None] + i[None, None, :] * VALUES + j[:, None, None] * one
    true = tl.trans(values)[:, :, None] & keys[None, :, :]

    S = tl.zeros([V, N, R], tl.float32)
    if HAS_STATE:
        S = tl.load(state_ptr + of_state, true, 0.0)
    q_1, q_2 = nothing(q_ptr, N, R)
    k_1, k_2 = nothing(k_ptr, N, R)
    do_1, do_2 = nothing(do_ptr, N, V)
    write_1, write_2 = nothing(write_ptr, N, V)
    decay_1, decay_2 = tl.zeros([N], tl.float32), tl.zeros([N], decay_ptr.dtype.element_ty)
    if ERASE:
        dv_1, dv_2 = nothing(dv_ptr, N, V)
        beta_1, beta_2 = tl.zeros([N], tl.float32), tl.zeros([N], beta_ptr.dtype.element_ty)
    for count in tl.range(0, time * J + AHEAD, num_stages=1):
        early = tl.cast(count, tl.int64)
        token, factor, more = early // J, early % J, early < time * J
        read = more & (factor == J - 1)
        q, q_1 = q_1, q_2.to(tl.float32)
        q_2 = load_vectors(q_ptr, q_start, token * q_t, keys & read, R)
        do, do_1 = do_1, do_2.to(tl.float32)
        do_2 = load_vectors(do_ptr, do_start, token * do_t, values & read, V)
        k, k_1 = k_1, k_2.to(tl.float32)
        k_2 = load_vectors(k_ptr, k_start, token * k_t + factor * k_j, keys & more, R)
        write, write_1 = write_1, write_2.to(tl.float32)
        write_2 = load_vectors(write_ptr, write_start, token * write_t + factor * write_j, values & more, V)
        decay, decay_1 = decay_1, decay_2.to(tl.float32)
        decay_2 = tl.load(decay_ptr + decay_start + token * decay_t, there & more & (factor == 0), 0.0)

        step = early - AHEAD
        S *= tl.exp(decay)[None, :, None]
        own, key = tl.zeros([N], tl.float32), k
        if ERASE:
            beta, beta_1 = beta_1, beta_2.to(tl.float32)
            beta_2 = tl.load(beta_ptr + beta_start + token * beta_t + factor * beta_j, there & more, 0.0)
            dv, dv_1 = dv_1, dv_2
            dv_2 = load_vectors(dv_ptr, at_start * VALUES, early * heads * VALUES, values & more, V)
            dread = -tl.sum(S * down(dv), 0)
            to = at_start * KEYS + first
            store_vectors(dread_ptr, dread, to, step * heads * KEYS, keys & (step >= 0), R)
            own += tl.sum(k * dread, 1)
            key *= beta[:, None]
        S += down(write) * key[None, :, :]
        dq = scale * tl.sum(S * down(do), 0)
        was_read = (step >= 0) & (step % J == J - 1)
        store_vectors(dq_ptr, dq, token_start * KEYS + first, step // J * heads * KEYS, keys & was_read, R)
        own += tl.sum(q * dq, 1)
        tl.store(own_ptr + (at_start + step * heads) * blocks + tl.program_id(1), own, there & (step >= 0))


@triton.jit(do_not_specialize=["sequences", "time", "one"])
def writes_kernel(  # type: ignore[no-untyped-def]
    do_ptr, dlast_ptr, last_ptr, q_ptr, k_ptr, write_ptr, decay_ptr, beta_ptr, dv_ptr, dread_ptr, own_ptr,
    dk_ptr, ddecay_ptr,
    sequences, time, heads, heads_per_group, one, blocks, scale,
    do_b, do_t, do_h, q_b, q_t, q_h, k_b, k_t, k_j, k_h, write_b, write_t, write_j, write_h,
    decay_b, decay_t, decay_h, beta_b, beta_t, beta_j, beta_h,
    KEYS: tl.constexpr, VALUES: tl.constexpr, J: tl.constexpr, ERASE: tl.constexpr, HAS_DLAST: tl.constexpr,
    V: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads / N, blocks of keys): walks back for the whole ∂k and the gradient of log decays, a part."""
    sequence, there, row, head = sequences_of(sequences, heads, N)
    group, first = head // heads_per_group, tl.program_id(1) * R
    i, j = first + tl.arange(0, R), tl.arange(0, V)
    keys, values = there[:, None] & (i < KEYS)[None, :], there[:, None] & (j < VALUES)[None, :]
    q_start, k_start = row * q_b + group * q_h + first, row * k_b + group * k_h + first
    do_start, write_start = row * do_b + head * do_h, row * write_b + head * write_h
    decay_start, beta_start = row * decay_b + head * decay_h, row * beta_b + head * beta_h
    token_start, at_start = row * time * heads + head, row * time * J * heads + head
    of_state = (sequence * KEYS * VALUES)[None, :, None] + i[None, None, :] * VALUES + j[:, None, None] * one
    true = tl.trans(values)[:, :, None] & keys[None, :, :]

    D, ddecay = tl.zeros([V, N, R], tl.float32), tl.zeros([N], tl.float32)
    if HAS_DLAST:
        D = tl.load(dlast_ptr + of_state, true, 0.0)
        ddecay = tl.sum(tl.sum(D * tl.load(last_ptr + of_state, true, 0.0), 0), 1)
    q_1, q_2 = nothing(q_ptr, N, R)
    k_1, k_2 = nothing(k_ptr, N, R)
    do_1, do_2 = nothing(do_ptr, N, V)
    write_1, write_2 = nothing(write_ptr, N, V)
    decay_1, decay_2 = tl.zeros([N], tl.float32), tl.zeros([N], decay_ptr.dtype.element_ty)
    own_1, own_2 = tl.zeros([N], tl.float32), tl.zeros([N], tl.float32)
    if ERASE:
        dv_1, dv_2 = nothing(dv_ptr, N, V)
        dread_1, dread_2 = nothing(dread_ptr, N, R)
        beta_1, beta_2 = tl.zeros([N], tl.float32), tl.zeros([N], beta_ptr.dtype.element_ty)
    for count in tl.range(0, time * J + AHEAD, num_stages=1):
        early = tl.cast(time, tl.int64) * J - 1 - count
        token, factor, more = early // J, early % J, early >= 0
        read, at = more & (factor == J - 1), at_start + early * heads
        q, q_1 = q_1, scale * q_2.to(tl.float32)
        q_2 = load_vectors(q_ptr, q_start, token * q_t, keys & read, R)
        do, do_1 = do_1, do_2.to(tl.float32)
        do_2 = load_vectors(do_ptr, do_start, token * do_t, values & read, V)
        k, k_1 = k_1, k_2.to(tl.float32)
        k_2 = load_vectors(k_ptr, k_start, token * k_t + factor * k_j, keys & more, R)
        write, write_1 = write_1, write_2.to(tl.float32)
        write_2 = load_vectors(write_ptr, write_start, token * write_t + factor * write_j, values & more, V)
        decay, decay_1 = decay_1, decay_2.to(tl.float32)
        decay_2 = tl.load(decay_ptr + decay_start + token * decay_t, there & more & (factor == 0), 0.0)
        own, own_1 = own_1, own_2
        own_2 = tl.load(own_ptr + at * blocks + tl.program_id(1), there & more, 0.0)

        step = early + AHEAD
        true_step = step < time * J
        D += down(do) * q[None, :, :]
        dk = tl.sum(D * down(write), 0)
        if ERASE:
            beta, beta_1 = beta_1, beta_2.to(tl.float32)
            beta_2 = tl.load(beta_ptr + beta_start + token * beta_t + factor * beta_j, there & more, 0.0)
            dk *= beta[:, None]
        passed = tl.exp(decay)
        ddecay = tl.where(passed == 0.0, 0.0, ddecay + (own - tl.sum(k * dk, 1)))
        to = ddecay_ptr + (token_start + step // J * heads) * blocks + tl.program_id(1)
        tl.store(to, ddecay.to(ddecay_ptr.dtype.element_ty), there & true_step & (step % J == 0))
        if ERASE:
            dv, dv_1 = dv_1, dv_2
            dv_2 = load_vectors(dv_ptr, at_start * VALUES, early * heads * VALUES, values & more, V)
            dread, dread_1 = dread_1, dread_2
            dread_2 = load_vectors(dread_ptr, at * KEYS + first, 0, keys & more, R)
            dk += dread
            D -= down(dv) * k[None, :, :]
        store_vectors(dk_ptr, dk, at_start * KEYS + first, step * heads * KEYS, keys & true_step, R)
        D *= passed[None, :, None]
