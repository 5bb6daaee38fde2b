"""What the chunked mLSTM reads, in Triton.

Legend: L steps of a chunk (I read, J written), K key width, V value width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mlstm.tiles_read import read_columns, read_gates, read_rows
from statelab.kernels.steps import LOG2E


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    h_ptr,
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
    NORMALISER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid [B · H · chunks]."""
    chunks = tl.cdiv(T, L)
    kept = tl.program_id(0).to(tl.int64)
    program, c = kept // chunks, kept % chunks
    b, head = program // H, program % H
    steps, at_K, at_V = tl.arange(0, L), tl.arange(0, BK), tl.arange(0, BV)
    in_K, in_V = at_K < K, at_V < V
    start = c * L
    live = steps < T - start
    q_ptr += b * strides_q[0] + start * strides_q[1] + head * strides_q[2]
    k_ptr += b * strides_k[0] + start * strides_k[1] + head * strides_k[2]
    v_ptr += b * strides_v[0] + start * strides_v[1] + head * strides_v[2]
    i_ptr += b * strides_i[0] + start * strides_i[1] + head * strides_i[2]
    f_ptr += b * strides_f[0] + start * strides_f[1] + head * strides_f[2]

    m = tl.load(kept_m_ptr + kept) * LOG2E
    _, F, x, M, _ = read_gates(i_ptr, f_ptr, strides_i[1], strides_f[1], steps, live, m)
    w = tl.exp2(m - M)
    past = steps[:, None] >= steps[None, :]
    decay = tl.where(past, tl.exp2((x + log2_scale)[None, :] - M[:, None]), 0.0)
    q = read_rows(q_ptr, strides_q[1], steps, live, at_K, in_K)
    # [I, K] @ [K, J] -> [I, J]
    P = dot(q, read_columns(k_ptr, strides_k[1], steps, live, at_K, in_K), PRECISION) * decay
    C = tl.load(
        kept_C_ptr + kept * K * V + at_K[:, None] * V + at_V[None, :],
        mask=in_K[:, None] & in_V[None, :],
        other=0.0,
    )
    # [I, K] @ [K, V] -> [I, V];  [I, J] @ [J, V] -> [I, V]
    h = w[:, None] * dot(q, C, PRECISION)
    h += dot(P, read_rows(v_ptr, strides_v[1], steps, live, at_V, in_V), PRECISION)
    if NORMALISER:
        n = tl.load(kept_n_ptr + kept * K + at_K, mask=in_K, other=0.0)
        nq = tl.sum(P, 1) + w * tl.sum(q * n[None, :], 1)
        h *= (1.0 / (tl.maximum(tl.abs(nq), tl.exp2(-F - M)) + 1e-6))[:, None]
    at_h = (b * T * H + start * H + head) * V + steps[:, None] * (H * V) + at_V[None, :]
    tl.store(h_ptr + at_h, h.to(h_ptr.dtype.element_ty), mask=live[:, None] & in_V[None, :])
