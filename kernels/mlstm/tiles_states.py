"""The memories between chunks, forwards, and their gradients, backwards, in Triton: all of the mLSTM that has to wait.

Legend: L steps of a chunk (I read, J written), K key width, V value width.

One program a row, head and block of values walks over the chunks with one product a chunk, C and n, or their gradients,
in registers; n and m, the same in each, are written by the first.
C and n are not joined to one matrix, as `chunk` has them: V + 1 columns would be padded to the next power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mlstm.tiles_read import LN2, read_columns, read_gates, read_rows
from statelab.kernels.steps import LOG2E


@triton.jit  # type: ignore[untyped-decorator]
def states_kernel(  # type: ignore[no-untyped-def]
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    start_C_ptr,
    start_n_ptr,
    start_m_ptr,
    last_C_ptr,
    last_n_ptr,
    last_m_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    strides_k,
    strides_v,
    strides_i,
    strides_f,
    T,
    H,
    log2_scale,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    L: tl.constexpr,
    HAS_STATE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid [B · H, blocks of V]. `kept` are C, n, m at the start of each chunk, `[B, H, chunks, …]`."""
    program = tl.program_id(0).to(tl.int64)
    b, head = program // H, program % H
    chunks = tl.cdiv(T, L)
    block = tl.program_id(1)
    steps, at_K, at_V = tl.arange(0, L), tl.arange(0, BK), block * BV + tl.arange(0, BV)
    in_K, in_V = at_K < K, at_V < V
    in_KV = in_K[:, None] & in_V[None, :]
    writes_K, writes = in_K & (block == 0), block == 0
    at_KV = at_K[:, None] * V + at_V[None, :]
    k_ptr += b * strides_k[0] + head * strides_k[2]
    v_ptr += b * strides_v[0] + head * strides_v[2]
    i_ptr += b * strides_i[0] + head * strides_i[2]
    f_ptr += b * strides_f[0] + head * strides_f[2]
    if HAS_STATE:
        C = tl.load(start_C_ptr + program * K * V + at_KV, mask=in_KV, other=0.0)
        n = tl.load(start_n_ptr + program * K + at_K, mask=in_K, other=0.0)
        m = tl.load(start_m_ptr + program) * LOG2E
    else:
        C = tl.zeros([BK, BV], tl.float32)
        n = tl.zeros([BK], tl.float32)
        m = 0.0
    for c in range(chunks):
        start = tl.cast(c, tl.int64) * L
        live = steps < T - c * L
        kept = program * chunks + c
        tl.store(kept_C_ptr + kept * K * V + at_KV, C, mask=in_KV)
        tl.store(kept_n_ptr + kept * K + at_K, n, mask=writes_K)
        tl.store(kept_m_ptr + kept, m * LN2, mask=writes)
        k_KL = read_columns(k_ptr + start * strides_k[1], strides_k[1], steps, live, at_K, in_K)
        v = read_rows(v_ptr + start * strides_v[1], strides_v[1], steps, live, at_V, in_V)
        _, F, x, M, _ = read_gates(
            i_ptr + start * strides_i[1],
            f_ptr + start * strides_f[1],
            strides_i[1],
            strides_f[1],
            steps,
            live,
            m,
        )
        # M never falls and F never rises: their ends are their largest and smallest.
        last_M = tl.max(M, 0)
        end = tl.exp2(x + log2_scale - last_M)
        kept_part = tl.exp2(m - last_M)
        k_KL *= end[None, :]
        # [K, J] @ [J, V] -> [K, V]
        C = kept_part * C + dot(k_KL, v, PRECISION)
        n = kept_part * n + tl.sum(k_KL, 1)
        m = tl.min(F, 0) + last_M
    tl.store(last_C_ptr + program * K * V + at_KV, C, mask=in_KV)
    tl.store(last_n_ptr + program * K + at_K, n, mask=writes_K)
    tl.store(last_m_ptr + program, m * LN2, mask=writes)


@triton.jit  # type: ignore[untyped-decorator]
def states_gradient_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    i_ptr,
    f_ptr,
    kept_m_ptr,
    dh_ptr,
    last_dC_ptr,
    last_dn_ptr,
    last_dm_ptr,
    steps_ptr,
    kept_dC_ptr,
    kept_dn_ptr,
    kept_dm_ptr,
    start_dC_ptr,
    start_dn_ptr,
    start_dm_ptr,
    strides_q,
    strides_i,
    strides_f,
    strides_h,
    T,
    H,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    L: tl.constexpr,
    HAS_STATE: tl.constexpr,
    HAS_LAST: tl.constexpr,
    NORMALISER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid [B · H, blocks of V]. `kept` gradients are those at the end of each chunk, m's as in `tiles_backward`.

    HAS_STATE: the start's gradient is wanted; HAS_LAST: the last state has one.
    """
    program = tl.program_id(0).to(tl.int64)
    b, head = program // H, program % H
    chunks = tl.cdiv(T, L)
    block = tl.program_id(1)
    steps, at_K, at_V = tl.arange(0, L), tl.arange(0, BK), block * BV + tl.arange(0, BV)
    in_K, in_V = at_K < K, at_V < V
    in_KV = in_K[:, None] & in_V[None, :]
    writes_K, writes = in_K & (block == 0), block == 0
    at_KV = at_K[:, None] * V + at_V[None, :]
    q_ptr += b * strides_q[0] + head * strides_q[2]
    i_ptr += b * strides_i[0] + head * strides_i[2]
    f_ptr += b * strides_f[0] + head * strides_f[2]
    dh_ptr += b * strides_h[0] + head * strides_h[2]
    D = tl.zeros([BK, BV], tl.float32)
    dn = tl.zeros([BK], tl.float32)
    dm = 0.0
    if HAS_LAST:
        D = tl.load(last_dC_ptr + program * K * V + at_KV, mask=in_KV, other=0.0)
        dn = tl.load(last_dn_ptr + program * K + at_K, mask=in_K, other=0.0)
        dm = tl.load(last_dm_ptr + program)
    for back in range(chunks):
        c = chunks - 1 - back
        start = tl.cast(c, tl.int64) * L
        live = steps < T - c * L
        kept = program * chunks + c
        tl.store(kept_dC_ptr + kept * K * V + at_KV, D, mask=in_KV)
        tl.store(kept_dn_ptr + kept * K + at_K, dn, mask=writes_K)
        tl.store(kept_dm_ptr + kept, dm, mask=writes)
        m = tl.load(kept_m_ptr + kept) * LOG2E
        _, _, _, M, at = read_gates(
            i_ptr + start * strides_i[1],
            f_ptr + start * strides_f[1],
            strides_i[1],
            strides_f[1],
            steps,
            live,
            m,
        )
        at_step = steps_ptr + program * 4 * T + start + steps
        dM = tl.load(at_step + T, mask=live, other=0.0) + tl.where(steps == L - 1, dm, 0.0)
        dm = tl.sum(tl.where(at < 0, dM, 0.0), 0)
        kept_part = tl.exp2(m - tl.max(M, 0))
        q_KL = read_columns(q_ptr + start * strides_q[1], strides_q[1], steps, live, at_K, in_K)
        dh = read_rows(dh_ptr + start * strides_h[1], strides_h[1], steps, live, at_V, in_V)
        q_KL *= tl.exp2(m - M)[None, :]
        dn = kept_part * dn
        if NORMALISER:
            dh *= tl.load(at_step + 2 * T, mask=live, other=0.0)[:, None]
            dn += tl.sum(q_KL * tl.load(at_step + 3 * T, mask=live, other=0.0)[None, :], 1)
        # [K, I] @ [I, V] -> [K, V]
        D = kept_part * D + dot(q_KL, dh, PRECISION)
    if HAS_STATE:
        tl.store(start_dC_ptr + program * K * V + at_KV, D, mask=in_KV)
        tl.store(start_dn_ptr + program * K + at_K, dn, mask=writes_K)
        tl.store(start_dm_ptr + program, dm, mask=writes)
