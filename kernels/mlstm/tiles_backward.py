"""The chunked mLSTM backward, in Triton. Legend: L steps of a chunk (I read, J written), K key width, V value width.

In units of e^m the memory e^m C knows nothing of m, so q, k, v and the gates are differentiated with m held fixed, and
m's own gradient is what is left: from the eps of the denominator (its floor, e^−m, is 1 in those units), from h where
nothing normalises it, and from the last state. It goes to the input gate that set m, of equal ones to the last, and to
the forget gates since.

A forget gate's gradient is that of all F from its step on. Summed over the whole sequence those terms cancel to almost
nothing and leave their rounding; here they are summed inside a chunk, and the chunks behind it enter by <D, C>, with D
the gradient of the memory at its end.

Three kernels: what a step read depends on the memory before its chunk; D follows from that (`tiles_states`); what a
step wrote depends on D behind its chunk. The first and the last have a program for every chunk, and make the products
[I, J] each for itself, the last as [J, I]: no product is turned, which in 16 bits Triton 3.6 does wrongly on Hopper.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mlstm.tiles_read import read_columns, read_gates, read_rows
from statelab.kernels.steps import LOG2E


@triton.jit  # type: ignore[untyped-decorator]
def reads_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    dh_ptr,
    dq_ptr,
    steps_ptr,
    strides_q,
    strides_k,
    strides_v,
    strides_i,
    strides_f,
    strides_h,
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
    """Grid [B · H · chunks]. Gives dq, and of each step what `writes_kernel` needs, `[B, H, 4, T]`: the gradients of F
    and of m, what dh is to be multiplied by to be the numerator's gradient, and n·q's gradient."""
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
    dh_ptr += b * strides_h[0] + start * strides_h[1] + head * strides_h[2]

    m = tl.load(kept_m_ptr + kept) * LOG2E
    _, F, x, M, _ = read_gates(i_ptr, f_ptr, strides_i[1], strides_f[1], steps, live, m)
    w = tl.exp2(m - M)
    past = steps[:, None] >= steps[None, :]
    decay = tl.where(past, tl.exp2((x + log2_scale)[None, :] - M[:, None]), 0.0)
    dh = read_rows(dh_ptr, strides_h[1], steps, live, at_V, in_V)
    C_VK = tl.load(
        kept_C_ptr + kept * K * V + at_K[None, :] * V + at_V[:, None],
        mask=in_K[None, :] & in_V[:, None],
        other=0.0,
    )
    # of w q, but for the denominator: [I, V] @ [V, K] -> [I, K]
    dwq = dot(dh, C_VK, PRECISION)
    # of P: [I, V] @ [V, J] -> [I, J]
    dP = dot(dh, read_columns(v_ptr, strides_v[1], steps, live, at_V, in_V), PRECISION)
    q = read_rows(q_ptr, strides_q[1], steps, live, at_K, in_K)
    # [I, K] @ [K, J] -> [I, J]
    P = dot(q, read_columns(k_ptr, strides_k[1], steps, live, at_K, in_K), PRECISION) * decay
    inside, before = tl.sum(P * dP, 1), w * tl.sum(q * dwq, 1)
    at_step = steps_ptr + program * 4 * T + start + steps
    if NORMALISER:
        n = tl.load(kept_n_ptr + kept * K + at_K, mask=in_K, other=0.0)
        written = tl.sum(P, 1)
        held = w * tl.sum(q * n[None, :], 1)
        nq, floor = written + held, tl.exp2(-F - M)
        part = 1.0 / (tl.maximum(tl.abs(nq), floor) + 1e-6)
        dsize = -(inside + before) * part * part
        dnq = tl.where(tl.abs(nq) > floor, tl.where(nq > 0, dsize, -dsize), 0.0)
        dP = dP * part[:, None] + dnq[:, None]
        dwq = dwq * part[:, None] + dnq[:, None] * n[None, :]
        tl.store(at_step, (inside + before) * part + nq * dnq, mask=live)
        tl.store(at_step + T, dsize * 1e-6, mask=live)
        tl.store(at_step + 2 * T, part, mask=live)
        tl.store(at_step + 3 * T, dnq, mask=live)
    else:
        tl.store(at_step, inside + before, mask=live)
        tl.store(at_step + T, -inside - before, mask=live)
    # [I, J] @ [J, K] -> [I, K]
    dq = (
        dot(dP * decay, read_rows(k_ptr, strides_k[1], steps, live, at_K, in_K), PRECISION) + w[:, None] * dwq
    )
    at_q = (b * T * H + start * H + head) * K + steps[:, None] * (H * K) + at_K[None, :]
    tl.store(dq_ptr + at_q, dq.to(dq_ptr.dtype.element_ty), mask=live[:, None] & in_K[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def writes_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    dh_ptr,
    steps_ptr,
    kept_dC_ptr,
    kept_dn_ptr,
    kept_dm_ptr,
    dk_ptr,
    dv_ptr,
    di_ptr,
    df_ptr,
    strides_q,
    strides_k,
    strides_v,
    strides_i,
    strides_f,
    strides_h,
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
    """Grid [B · H · chunks]. Gives dk, dv, and the gates' gradients."""
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
    dh_ptr += b * strides_h[0] + start * strides_h[1] + head * strides_h[2]
    first = b * T * H + start * H + head

    m = tl.load(kept_m_ptr + kept) * LOG2E
    f, _, x, M, at = read_gates(i_ptr, f_ptr, strides_i[1], strides_f[1], steps, live, m)
    # M never falls: its last is its largest.
    last_M = tl.max(M, 0)
    end = tl.exp2(x + log2_scale - last_M)
    future = steps[:, None] <= steps[None, :]
    decay = tl.where(future, tl.exp2((x + log2_scale)[:, None] - M[None, :]), 0.0)
    at_step = steps_ptr + program * 4 * T + start + steps
    dM = tl.load(at_step + T, mask=live, other=0.0) + tl.where(
        steps == L - 1, tl.load(kept_dm_ptr + kept), 0.0
    )

    # Behind the chunk: [J, V] @ [V, K] -> [J, K]
    at_VK = kept * K * V + at_K[None, :] * V + at_V[:, None]
    in_VK = in_K[None, :] & in_V[:, None]
    D_VK = tl.load(kept_dC_ptr + at_VK, mask=in_VK, other=0.0)
    dn = tl.load(kept_dn_ptr + kept * K + at_K, mask=in_K, other=0.0)
    through = tl.sum(tl.sum(D_VK * tl.load(kept_C_ptr + at_VK, mask=in_VK, other=0.0), 1), 0)
    through += tl.sum(dn * tl.load(kept_n_ptr + kept * K + at_K, mask=in_K, other=0.0), 0)
    v = read_rows(v_ptr, strides_v[1], steps, live, at_V, in_V)
    dk = end[:, None] * (dot(v, D_VK, PRECISION) + dn[None, :])
    k = read_rows(k_ptr, strides_k[1], steps, live, at_K, in_K)
    stays = tl.sum(k * dk, 1)
    through = tl.exp2(m - last_M) * through + tl.sum(stays, 0)

    # Inside: [J, V] @ [V, I] -> [J, I];  [J, K] @ [K, I] -> [J, I]
    dP = dot(v, read_columns(dh_ptr, strides_h[1], steps, live, at_V, in_V), PRECISION)
    P = dot(k, read_columns(q_ptr, strides_q[1], steps, live, at_K, in_K), PRECISION) * decay
    if NORMALISER:
        part = tl.load(at_step + 2 * T, mask=live, other=0.0)
        dnq = tl.load(at_step + 3 * T, mask=live, other=0.0)
        dP = dP * part[None, :] + dnq[None, :]
    set_by = steps[:, None] == at[None, :]
    di = tl.sum(P * dP + tl.where(set_by, dM[None, :], 0.0), 1) + stays
    dF = tl.load(at_step, mask=live, other=0.0) + dM - di + tl.where(steps == L - 1, through, 0.0)
    df = tl.cumsum(dF, 0, reverse=True) / (1.0 + tl.exp2(f * LOG2E))
    tl.store(di_ptr + first + steps * H, di.to(di_ptr.dtype.element_ty), mask=live)
    tl.store(df_ptr + first + steps * H, df.to(df_ptr.dtype.element_ty), mask=live)

    # [J, I] @ [I, K] -> [J, K]
    dk += dot(dP * decay, read_rows(q_ptr, strides_q[1], steps, live, at_K, in_K), PRECISION)
    at_k = first * K + steps[:, None] * (H * K) + at_K[None, :]
    tl.store(dk_ptr + at_k, dk.to(dk_ptr.dtype.element_ty), mask=live[:, None] & in_K[None, :])
    if NORMALISER:
        P *= part[None, :]
    # [J, I] @ [I, V] -> [J, V];  [J, K] @ [K, V] -> [J, V], both operands read again: registers are scarce
    dv = dot(P, read_rows(dh_ptr, strides_h[1], steps, live, at_V, in_V), PRECISION)
    D = tl.load(
        kept_dC_ptr + kept * K * V + at_K[:, None] * V + at_V[None, :],
        mask=in_K[:, None] & in_V[None, :],
        other=0.0,
    )
    k = read_rows(k_ptr, strides_k[1], steps, live, at_K, in_K)
    dv += end[:, None] * dot(k, D, PRECISION)
    at_v = first * V + steps[:, None] * (H * V) + at_V[None, :]
    tl.store(dv_ptr + at_v, dv.to(dv_ptr.dtype.element_ty), mask=live[:, None] & in_V[None, :])
