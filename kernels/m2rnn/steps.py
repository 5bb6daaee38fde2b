"""M²RNN's Triton kernels: a program takes some keys of one row and head through all steps.

Legend: B rows, T time, H heads, G groups of heads, K key width, V value width; `rows` of a lane share weights. A key's
line of the state, `[V]`, goes through time without the others: they meet in y, and in the gradients of v, f and
W, which every program gives its share of.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.elementary import clipped_sum, fetch_ahead, tanh

FAR = tl.constexpr(8)
"""How many steps ahead the inputs of a step are brought near."""


@triton.jit(do_not_specialize=["T", "rows", "marks"])
def forward_kernel(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, f_ptr, w_ptr, state_ptr, y_ptr, last_ptr, kept_ptr,
    T, H, K, V, rows, heads_of_group, marks,
    q_B, q_T, q_G, k_B, k_T, k_G, v_B, v_T, v_H, f_B, f_T, f_H,
    HAS_F: tl.constexpr, EVERY: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    group, lane = head // heads_of_group, b // rows
    i, j = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    keys, values = i < K, j < V
    mask = keys[:, None] & values[None, :]
    of_w = (lane * H + head) * V * V + j[:, None] * V + j[None, :]
    W = tl.load(w_ptr + of_w, values[:, None] & values[None, :], 0.0).to(tl.float32)
    of_state = i[:, None] * V + j[None, :]
    of_head = (b * H + head) * K * V
    S = tl.load(state_ptr + of_head + of_state, mask, 0.0).to(tl.float32)
    q_ptrs, k_ptrs = q_ptr + b * q_B + group * q_G + i, k_ptr + b * k_B + group * k_G + i
    v_ptrs, f_ptrs = v_ptr + b * v_B + head * v_H + j, f_ptr + b * f_B + head * f_H
    y_ptrs = y_ptr + ((b * T * H + head) * tl.num_programs(2) + tl.program_id(2)) * V + j
    kept_ptrs = kept_ptr + (b * marks * H + head) * K * V + of_state
    q, k, v = tl.load(q_ptrs, keys, 0.0), tl.load(k_ptrs, keys, 0.0), tl.load(v_ptrs, values, 0.0)
    f = tl.load(f_ptrs).to(tl.float32) if HAS_F else 0.0
    for t in tl.range(0, T, num_stages=1):
        far = tl.minimum(T - 1, t + FAR).to(tl.int64)
        fetch_ahead(q_ptr + b * q_B + group * q_G + far * q_T + i)
        fetch_ahead(k_ptr + b * k_B + group * k_G + far * k_T + i)
        fetch_ahead(v_ptr + b * v_B + head * v_H + far * v_T + j)
        q_ptrs += q_T
        k_ptrs += k_T
        v_ptrs += v_T
        more = t + 1 < T
        next_q, next_k = tl.load(q_ptrs, keys & more, 0.0), tl.load(k_ptrs, keys & more, 0.0)
        next_v = tl.load(v_ptrs, values & more, 0.0)
        if t % EVERY == 0:
            tl.store(kept_ptrs, S, mask)
            kept_ptrs += H * K * V
        write = k.to(tl.float32)[:, None] * v.to(tl.float32)[None, :]
        Z = tanh(dot(S, W, PRECISION) + write, PRECISION)
        if HAS_F:
            f_ptrs += f_T
            next_f = tl.load(f_ptrs, more, 0.0).to(tl.float32)
            S = Z + f * (S - Z)
            f = next_f
        else:
            S = Z
        y = tl.sum(q.to(tl.float32)[:, None] * S, 0)
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), values)
        y_ptrs += H * tl.num_programs(2) * V
        q, k, v = next_q, next_k, next_v
    tl.store(last_ptr + of_head + of_state, S, mask)


@triton.jit
def _states(  # type: ignore[no-untyped-def]
    S, W, k_ptrs, v_ptrs, f_ptrs, room_ptrs, keys, values, steps, k_T, v_T, f_T,
    HAS_F: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The state after some steps; that before each goes into the program's room."""
    k, v = tl.load(k_ptrs, keys, 0.0), tl.load(v_ptrs, values, 0.0)
    f = tl.load(f_ptrs).to(tl.float32) if HAS_F else 0.0
    for t in tl.range(0, steps, num_stages=1):
        more = t + 1 < steps
        k_ptrs += k_T
        v_ptrs += v_T
        next_k, next_v = tl.load(k_ptrs, keys & more, 0.0), tl.load(v_ptrs, values & more, 0.0)
        tl.store(room_ptrs, S)
        room_ptrs += SIZE
        write = k.to(tl.float32)[:, None] * v.to(tl.float32)[None, :]
        Z = tanh(dot(S, W, PRECISION) + write, PRECISION)
        if HAS_F:
            f_ptrs += f_T
            next_f = tl.load(f_ptrs, more, 0.0).to(tl.float32)
            S = Z + f * (S - Z)
            f = next_f
        else:
            S = Z
        k, v = next_k, next_v
    return S


@triton.jit(do_not_specialize=["T", "rows", "marks"])
def backward_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, kept_ptr, room_ptr, q_ptr, k_ptr, v_ptr, f_ptr, w_ptr,
    dq_ptr, dk_ptr, dv_ptr, df_ptr, dw_ptr, dstate_ptr,
    T, H, K, V, rows, heads_of_group, marks, bound,
    dy_B, dy_T, dy_H, q_B, q_T, q_G, k_B, k_T, k_G, v_B, v_T, v_H, f_B, f_T, f_H,
    HAS_F: tl.constexpr, EVERY: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr, CLIP: tl.constexpr, STAGES: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    group, lane, tiles = head // heads_of_group, b // rows, tl.num_programs(2)
    line, j = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    i = tl.program_id(2) * BLOCK_K + line
    keys, values = i < K, j < V
    mask, square = keys[:, None] & values[None, :], values[:, None] & values[None, :]
    w_ptrs = w_ptr + (lane * H + head) * V * V + j[:, None] * V + j[None, :]
    w_transposed_ptrs = w_ptr + (lane * H + head) * V * V + j[None, :] * V + j[:, None]
    W = tl.load(w_ptrs, square, 0.0).to(tl.float32)
    W_transposed = tl.load(w_transposed_ptrs, square, 0.0).to(tl.float32)
    of_state = i[:, None] * V + j[None, :]
    of_head = (b * H + head) * K * V
    carried = tl.load(dlast_ptr + of_head + of_state, mask, 0.0).to(tl.float32)
    SIZE: tl.constexpr = BLOCK_K * BLOCK_V
    room = room_ptr + ((b * H + head) * tiles + tl.program_id(2)) * EVERY * SIZE
    in_room, in_room_transposed = line[:, None] * BLOCK_V + j[None, :], line[None, :] * BLOCK_V + j[:, None]
    q_ptr += b * q_B + group * q_G
    k_ptr += b * k_B + group * k_G
    v_ptr += b * v_B + head * v_H
    f_ptr += b * f_B + head * f_H
    dy_ptr += b * dy_B + head * dy_H
    dW = tl.zeros([BLOCK_V, BLOCK_V], tl.float32)
    for segment in range(marks):
        mark = marks - 1 - segment
        begin = mark.to(tl.int64) * EVERY
        steps = tl.minimum(T - mark * EVERY, EVERY)
        S = tl.load(kept_ptr + ((b * marks + mark) * H + head) * K * V + of_state, mask, 0.0)
        k_ptrs, v_ptrs, f_ptrs = k_ptr + begin * k_T + i, v_ptr + begin * v_T + j, f_ptr + begin * f_T
        S = _states(
            S, W, k_ptrs, v_ptrs, f_ptrs, room + in_room, keys, values, steps, k_T, v_T, f_T,
            HAS_F, SIZE, PRECISION,
        )  # fmt: skip
        # What other threads of this program wrote must be seen before it is read.
        tl.debug_barrier()
        for back in tl.range(0, steps, num_stages=STAGES):
            if not HELD:
                W = tl.load(w_ptrs, square, 0.0).to(tl.float32)
                W_transposed = tl.load(w_transposed_ptrs, square, 0.0).to(tl.float32)
            step = steps - 1 - back
            t = begin + step
            before = tl.load(room + step * SIZE + in_room)
            q = tl.load(q_ptr + t * q_T + i, keys, 0.0).to(tl.float32)
            k = tl.load(k_ptr + t * k_T + i, keys, 0.0).to(tl.float32)
            v = tl.load(v_ptr + t * v_T + j, values, 0.0).to(tl.float32)
            dy = tl.load(dy_ptr + t * dy_T + j, values, 0.0).to(tl.float32)
            at = (b * T + t) * H + head
            dq = tl.sum(S * dy[None, :], 1)
            tl.store(dq_ptr + at * K + i, dq.to(dq_ptr.dtype.element_ty), keys)
            R = clipped_sum(q[:, None] * dy[None, :], carried, bound, CLIP)
            if HAS_F:
                f = tl.load(f_ptr + t * f_T).to(tl.float32)
                Z = tanh(dot(before, W, PRECISION) + k[:, None] * v[None, :], PRECISION)
                df = tl.sum(tl.sum(R * (before - Z), 1), 0)
                tl.store(df_ptr + at * tiles + tl.program_id(2), df.to(df_ptr.dtype.element_ty))
                dX = (1.0 - f) * R * (1.0 - Z * Z)
                carried = f * R + dot(dX, W_transposed, PRECISION)
            else:
                dX = R * (1.0 - S * S)
                carried = dot(dX, W_transposed, PRECISION)
            if BLOCK_V < 64:
                before_transposed = tl.trans(before.to(tl.bfloat16) if PRECISION == "bf16" else before)
            else:
                # Hopper's wide products have been miscompiled on tiles transposed in registers.
                before_transposed = tl.load(room + step * SIZE + in_room_transposed)
            dW += dot(before_transposed, dX, PRECISION)
            dk = tl.sum(dX * v[None, :], 1)
            tl.store(dk_ptr + at * K + i, dk.to(dk_ptr.dtype.element_ty), keys)
            dv = tl.sum(dX * k[:, None], 0)
            tl.store(dv_ptr + (at * tiles + tl.program_id(2)) * V + j, dv.to(dv_ptr.dtype.element_ty), values)
            S = before
        tl.debug_barrier()
    tl.store(dstate_ptr + of_head + of_state, carried.to(dstate_ptr.dtype.element_ty), mask)
    of_dw = dw_ptr + ((b * H + head) * tiles + tl.program_id(2)) * V * V
    tl.store(of_dw + j[:, None] * V + j[None, :], dW, square)
