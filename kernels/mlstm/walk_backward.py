"""The mLSTM's backward with a program for each sequence, in Triton: what `tiles_backward` says, in one kernel.

Legend: L steps of a chunk (I read, J written), K key width, V value width; D [V, K] and dn are the gradients of the
memory behind a chunk, kept in registers from the last chunk to the first.

The products [J, I] are made once. What reads needs them turned: their 16-bit fragments change places, which is right
with the matrix instructions of one warp that chunks of 32 steps get, and wrong (Triton 3.6, Hopper) with a warp
group's, of 64 rows and 4 warps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mlstm.tiles_read import read_gates, read_rows
from statelab.kernels.steps import LOG2E


@triton.jit
def _add_run(sum, of, value, of_value):  # type: ignore[no-untyped-def]
    """Sums of neighbours with the same `of`."""
    return tl.where(of == of_value, sum + value, value), of_value


@triton.jit  # type: ignore[untyped-decorator]
def walk_gradient_kernel(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    i_ptr,
    f_ptr,
    kept_C_ptr,
    kept_n_ptr,
    kept_m_ptr,
    nq_ptr,
    dh_ptr,
    last_dC_ptr,
    last_dn_ptr,
    last_dm_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    di_ptr,
    df_ptr,
    start_dC_ptr,
    start_dn_ptr,
    start_dm_ptr,
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
    HAS_STATE: tl.constexpr,
    HAS_LAST: tl.constexpr,
    NORMALISER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid [B · H]. HAS_STATE: the start's gradient is wanted; HAS_LAST: the last state has one."""
    program = tl.program_id(0).to(tl.int64)
    b, head = program // H, program % H
    chunks = tl.cdiv(T, L)
    steps, at_K, at_V = tl.arange(0, L), tl.arange(0, BK), tl.arange(0, BV)
    in_K, in_V = at_K < K, at_V < V
    in_VK = in_V[:, None] & in_K[None, :]
    at_VK = at_K[None, :] * V + at_V[:, None]
    future = steps[:, None] <= steps[None, :]
    q_ptr += b * strides_q[0] + head * strides_q[2]
    k_ptr += b * strides_k[0] + head * strides_k[2]
    v_ptr += b * strides_v[0] + head * strides_v[2]
    i_ptr += b * strides_i[0] + head * strides_i[2]
    f_ptr += b * strides_f[0] + head * strides_f[2]
    dh_ptr += b * strides_h[0] + head * strides_h[2]
    if HAS_LAST:
        D = tl.load(last_dC_ptr + program * K * V + at_VK, mask=in_VK, other=0.0)
        dn = tl.load(last_dn_ptr + program * K + at_K, mask=in_K, other=0.0)
        dm = tl.load(last_dm_ptr + program)
    else:
        D = tl.zeros([BV, BK], tl.float32)
        dn = tl.zeros([BK], tl.float32)
        dm = 0.0
    for back in range(chunks):
        c = tl.cast(chunks - 1 - back, tl.int64)
        start = c * L
        first = (b * T + start) * H + head
        live = steps < T - start
        kept = program * chunks + c
        held = (c > 0) | HAS_STATE
        q_c, k_c = q_ptr + start * strides_q[1], k_ptr + start * strides_k[1]
        v_c, dh_c = v_ptr + start * strides_v[1], dh_ptr + start * strides_h[1]
        m = tl.load(kept_m_ptr + kept) * LOG2E
        f, F, x, M, setter = read_gates(
            i_ptr + start * strides_i[1],
            f_ptr + start * strides_f[1],
            strides_i[1],
            strides_f[1],
            steps,
            live,
            m,
        )
        w = tl.exp2(m - M)
        # M never falls: its last is its largest.
        last_M = tl.max(M, 0)
        end = tl.exp2(x + log2_scale - last_M)
        kept_part = tl.exp2(m - last_M)
        q = read_rows(q_c, strides_q[1], steps, live, at_K, in_K)
        k = read_rows(k_c, strides_k[1], steps, live, at_K, in_K)
        v = read_rows(v_c, strides_v[1], steps, live, at_V, in_V)
        dh = read_rows(dh_c, strides_h[1], steps, live, at_V, in_V)
        C = tl.load(kept_C_ptr + kept * K * V + at_VK, mask=in_VK & held, other=0.0).to(tl.float32)
        n = tl.load(kept_n_ptr + kept * K + at_K, mask=in_K & held, other=0.0)
        through = tl.sum(tl.sum(D * C, 1), 0) + tl.sum(dn * n, 0)

        # [J, K] @ [K, I] -> [J, I];  [J, V] @ [V, I] -> [J, I];  of w q: [I, V] @ [V, K] -> [I, K]
        decay = tl.where(future, tl.exp2((x + log2_scale)[:, None] - M[None, :]), 0.0)
        P = dot(k, tl.trans(q), PRECISION) * decay
        dP = dot(v, tl.trans(dh), PRECISION)
        dwq = dot(dh, C, PRECISION)
        read = tl.sum(P * dP, 0) + w * tl.sum(q * dwq, 1)
        if NORMALISER:
            nq = tl.load(nq_ptr + program * T + start + steps, mask=live, other=0.0)
            floor = tl.exp2(-F - M)
            part = 1.0 / (tl.maximum(tl.abs(nq), floor) + 1e-6)
            dsize = -read * part * part
            dnq = tl.where(tl.abs(nq) > floor, tl.where(nq > 0, dsize, -dsize), 0.0)
            dF = read * part + nq * dnq
            dM = dsize * 1e-6
            dP = dP * part[None, :] + dnq[None, :]
            reads = w * part
            dq = reads[:, None] * dwq + (w * dnq)[:, None] * n[None, :]
        else:
            dF = read
            dM = -read
            reads = w
            dq = w[:, None] * dwq

        # Each M's gradient goes to the step that set it, of which there is one run of steps.
        dM += tl.where(steps == L - 1, dm, 0.0)
        dm = tl.sum(tl.where(setter < 0, dM, 0.0), 0)
        run, _ = tl.associative_scan((dM, setter), 0, _add_run, reverse=True)
        di = tl.sum(P * dP, 1) + tl.where(setter == steps, run, 0.0)
        dP *= decay
        # [I, J] @ [J, K] -> [I, K]
        dq += dot(tl.trans(dP), k, PRECISION)
        at_k = first * K + steps[:, None] * (H * K) + at_K[None, :]
        tl.store(dq_ptr + at_k, dq.to(dq_ptr.dtype.element_ty), mask=live[:, None] & in_K[None, :])

        # Behind the chunk: [J, V] @ [V, K] -> [J, K]. Operands are read again: registers are scarce.
        v = read_rows(v_c, strides_v[1], steps, live, at_V, in_V)
        k = read_rows(k_c, strides_k[1], steps, live, at_K, in_K)
        dk = dot(v, D, PRECISION) + dn[None, :]
        stays = end * tl.sum(k * dk, 1)
        through = kept_part * through + tl.sum(stays, 0)
        di += stays
        dF += dM - di + tl.where(steps == L - 1, through, 0.0)
        df = tl.cumsum(dF, 0, reverse=True) / (1.0 + tl.exp2(f * LOG2E))
        tl.store(di_ptr + first + steps * H, di.to(di_ptr.dtype.element_ty), mask=live)
        tl.store(df_ptr + first + steps * H, df.to(df_ptr.dtype.element_ty), mask=live)
        q = read_rows(q_c, strides_q[1], steps, live, at_K, in_K)
        # [J, I] @ [I, K] -> [J, K]
        dk = end[:, None] * dk + dot(dP, q, PRECISION)
        tl.store(dk_ptr + at_k, dk.to(dk_ptr.dtype.element_ty), mask=live[:, None] & in_K[None, :])
        dh = read_rows(dh_c, strides_h[1], steps, live, at_V, in_V)
        if NORMALISER:
            P *= part[None, :]
        # [J, K] @ [K, V] -> [J, V];  [J, I] @ [I, V] -> [J, V]
        dv = end[:, None] * dot(k, tl.trans(D), PRECISION) + dot(P, dh, PRECISION)
        at_v = first * V + steps[:, None] * (H * V) + at_V[None, :]
        tl.store(dv_ptr + at_v, dv.to(dv_ptr.dtype.element_ty), mask=live[:, None] & in_V[None, :])

        dn = kept_part * dn
        if NORMALISER:
            dn += tl.sum(q * (w * dnq)[:, None], 0)
        # [V, I] @ [I, K] -> [V, K]
        D = kept_part * D + dot(tl.trans(dh), q * reads[:, None], PRECISION)
    if HAS_STATE:
        tl.store(start_dC_ptr + program * K * V + at_VK, D, mask=in_VK)
        tl.store(start_dn_ptr + program * K + at_K, dn, mask=in_K)
        tl.store(start_dm_ptr + program, dm)
