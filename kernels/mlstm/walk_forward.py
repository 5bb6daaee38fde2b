"""The mLSTM with a program for each sequence, forwards, in Triton: its chunks one after another, C and n in registers.

Legend: L steps of a chunk (I read, J written), K key width, V value width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mlstm.tiles_read import LN2, read_columns, read_gates, read_rows
from statelab.kernels.steps import LOG2E


@triton.jit  # type: ignore[untyped-decorator]
def walk_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    start_C_ptr,
    start_n_ptr,
    start_m_ptr,
    h_ptr,
    last_C_ptr,
    last_n_ptr,
    last_m_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    nq_ptr,
    strides_q,
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
    NORMALISER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid [B · H]. `kept` are C, n, m at the start of each chunk, but for C and n that are zeros, `nq` is n·q of each
    step, `[B, H, T]`, where there is a normaliser: what `walk_gradient_kernel` would have to make again."""
    program = tl.program_id(0).to(tl.int64)
    b, head = program // H, program % H
    chunks = tl.cdiv(T, L)
    steps, at_K, at_V = tl.arange(0, L), tl.arange(0, BK), tl.arange(0, BV)
    in_K, in_V = at_K < K, at_V < V
    in_KV = in_K[:, None] & in_V[None, :]
    at_KV = at_K[:, None] * V + at_V[None, :]
    past = steps[:, None] >= steps[None, :]
    q_ptr += b * strides_q[0] + head * strides_q[2]
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
        keeps = (c > 0) | HAS_STATE
        tl.store(kept_C_ptr + kept * K * V + at_KV, C.to(kept_C_ptr.dtype.element_ty), mask=in_KV & keeps)
        tl.store(kept_n_ptr + kept * K + at_K, n, mask=in_K & keeps)
        tl.store(kept_m_ptr + kept, m * LN2)

        _, F, x, M, _ = read_gates(
            i_ptr + start * strides_i[1],
            f_ptr + start * strides_f[1],
            strides_i[1],
            strides_f[1],
            steps,
            live,
            m,
        )
        w = tl.exp2(m - M)
        decay = tl.where(past, tl.exp2((x + log2_scale)[None, :] - M[:, None]), 0.0)
        q = read_rows(q_ptr + start * strides_q[1], strides_q[1], steps, live, at_K, in_K)
        k_KL = read_columns(k_ptr + start * strides_k[1], strides_k[1], steps, live, at_K, in_K)
        v = read_rows(v_ptr + start * strides_v[1], strides_v[1], steps, live, at_V, in_V)
        # [I, K] @ [K, J] -> [I, J];  [I, K] @ [K, V] -> [I, V];  [I, J] @ [J, V] -> [I, V]
        P = dot(q, k_KL, PRECISION) * decay
        h = w[:, None] * dot(q, C, PRECISION)
        h += dot(P, v, PRECISION)
        if NORMALISER:
            nq = tl.sum(P, 1) + w * tl.sum(q * n[None, :], 1)
            h *= (1.0 / (tl.maximum(tl.abs(nq), tl.exp2(-F - M)) + 1e-6))[:, None]
            tl.store(nq_ptr + program * T + start + steps, nq, mask=live)
        at_h = ((b * T + start) * H + head) * V + steps[:, None] * (H * V) + at_V[None, :]
        tl.store(h_ptr + at_h, h.to(h_ptr.dtype.element_ty), mask=live[:, None] & in_V[None, :])

        # M never falls and F never rises: their ends are their largest and smallest.
        last_M = tl.max(M, 0)
        kept_part = tl.exp2(m - last_M)
        k_KL *= tl.exp2(x + log2_scale - last_M)[None, :]
        # [K, J] @ [J, V] -> [K, V]
        C = kept_part * C + dot(k_KL, v, PRECISION)
        n = kept_part * n + tl.sum(k_KL, 1)
        m = tl.min(F, 0) + last_M
    tl.store(last_C_ptr + program * K * V + at_KV, C, mask=in_KV)
    tl.store(last_n_ptr + program * K + at_K, n, mask=in_K)
    tl.store(last_m_ptr + program, m * LN2)
