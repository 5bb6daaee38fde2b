"""M²RNN's gradients in Triton: a program takes some keys of one row and head back through time, segment by segment.

Legend: B rows, T time, H heads, G groups of heads, K key width, V value width; `rows` of a lane share weights.

A segment is the steps between two states that the forward kept, and has three passes, of which only what must be is
sequential. First the states again, with the gradient of q. Then the gradient R of each state, from the last step to
the first, with those of k and f; with X = S W + k vᵀ, so that Z = tanh X, a step back is

    R = q dyᵀ + carried,    dX = (1 − f) R (1 − Z²),    carried ← f R + dX Wᵀ.

Last the gradients that are sums over keys: W's, Σ Sᵀ dX over steps and keys, and v's, as a few large products. Between
the passes S, Z and, in Z's place, dX wait in the program's room in memory, in 16 bits where products are made in 16.
Neither the states nor what is carried back are ever rounded.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.elementary import clipped_sum, fetch_ahead, tanh


@triton.jit
def _states(  # type: ignore[no-untyped-def]
    S, w_ptrs, square, k_ptr, v_ptr, f_ptr, dy_ptr, dq_ptr, room, i, j, keys, values, steps,
    k_T, v_T, f_T, dy_T, d_T, HAS_F: tl.constexpr, EVERY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Into the room the state before each step and, EVERY tiles behind it, its Z; the gradient of q."""
    SIZE: tl.constexpr = S.shape[0] * S.shape[1]
    W = tl.load(w_ptrs, square, 0.0).to(tl.float32)
    rooms = room + tl.arange(0, S.shape[0])[:, None] * S.shape[1] + j[None, :]
    k, v = tl.load(k_ptr + i, keys, 0.0), tl.load(v_ptr + j, values, 0.0)
    for step in tl.range(0, steps, num_stages=1):
        write = k.to(tl.float32)[:, None] * v.to(tl.float32)[None, :]
        more = step + 1 < steps
        k_ptr += k_T
        v_ptr += v_T
        k, v = tl.load(k_ptr + i, keys & more, 0.0), tl.load(v_ptr + j, values & more, 0.0)
        dy = tl.load(dy_ptr + j, values, 0.0).to(tl.float32)
        Z = tanh(dot(S, W, PRECISION) + write, PRECISION)
        tl.store(rooms, S.to(room.dtype.element_ty))
        tl.store(rooms + EVERY * SIZE, Z.to(room.dtype.element_ty))
        S = Z + tl.load(f_ptr).to(tl.float32) * (S - Z) if HAS_F else Z
        dq = tl.sum(S * dy[None, :], 1)
        tl.store(dq_ptr + i, dq.to(dq_ptr.dtype.element_ty), keys)
        f_ptr += f_T
        dy_ptr += dy_T
        dq_ptr += d_T
        rooms += SIZE
    # The last segment of all, which is the first here, may have fewer steps: zeros for the others, so that products
    # over steps are of whole tiles and mask nothing.
    for _ in tl.range(steps, EVERY, num_stages=1):
        tl.store(rooms, tl.zeros_like(S).to(room.dtype.element_ty))
        tl.store(rooms + EVERY * SIZE, tl.zeros_like(S).to(room.dtype.element_ty))
        rooms += SIZE


@triton.jit
def _states_back(  # type: ignore[no-untyped-def]
    carried, w_transposed_ptrs, square, q_ptr, v_ptr, f_ptr, dy_ptr, dk_ptr, df_ptr, room,
    i, j, keys, values, steps, bound, q_T, v_T, f_T, dy_T, d_T,
    HAS_F: tl.constexpr, EVERY: tl.constexpr, PRECISION: tl.constexpr, CLIP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of the state before the segment, from that after it; dX in Z's place; the gradients of k and f.

    Pointers are those of the last step. f's gradient is left as a share from each key.
    """
    SIZE: tl.constexpr = carried.shape[0] * carried.shape[1]
    W_transposed = tl.load(w_transposed_ptrs, square, 0.0).to(tl.float32)
    in_room = tl.arange(0, carried.shape[0])[:, None] * carried.shape[1] + j[None, :]
    q, v = tl.load(q_ptr + i, keys, 0.0), tl.load(v_ptr + j, values, 0.0)
    dy = tl.load(dy_ptr + j, values, 0.0)
    for back in tl.range(0, steps, num_stages=STAGES):
        Z = tl.load(room + EVERY * SIZE + in_room).to(tl.float32)
        R = clipped_sum(q.to(tl.float32)[:, None] * dy.to(tl.float32)[None, :], carried, bound, CLIP)
        q_ptr -= q_T
        dy_ptr -= dy_T
        more = back + 1 < steps
        q, dy = tl.load(q_ptr + i, keys & more, 0.0), tl.load(dy_ptr + j, values & more, 0.0)
        dX = R * (1.0 - Z * Z)
        if HAS_F:
            f = tl.load(f_ptr).to(tl.float32)
            before = tl.load(room + in_room).to(tl.float32)
            tl.store(df_ptr + i, tl.sum(R * (before - Z), 1), keys)
            dX *= 1.0 - f
            carried = f * R + dot(dX, W_transposed, PRECISION)
        else:
            carried = dot(dX, W_transposed, PRECISION)
        tl.store(room + EVERY * SIZE + in_room, dX.to(room.dtype.element_ty))
        dk = tl.sum(dX * v.to(tl.float32)[None, :], 1)
        tl.store(dk_ptr + i, dk.to(dk_ptr.dtype.element_ty), keys)
        v_ptr -= v_T
        v = tl.load(v_ptr + j, values & more, 0.0)
        f_ptr -= f_T
        dk_ptr -= d_T
        df_ptr -= d_T
        room -= SIZE
    return carried


@triton.jit
def _products(  # type: ignore[no-untyped-def]
    dw_ptrs, square, fresh, k_ptr, dv_ptr, room, first_key, j, steps, k_T, dv_T,
    K: tl.constexpr, V: tl.constexpr, EVERY: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    ROWS: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The segment's share of W's gradient, added unless `fresh`; the gradient of v. A row is a key of a step."""
    SIZE: tl.constexpr = BLOCK_K * BLOCK_V
    # In memory between segments, for the other passes need the registers.
    dW = tl.load(dw_ptrs, square & (not fresh), 0.0)
    for first in tl.range(0, EVERY * BLOCK_K, ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        dX = tl.load(room + EVERY * SIZE + row[:, None] * BLOCK_V + j[None, :])
        # Read transposed: Hopper's wide products have been miscompiled on tiles transposed in registers.
        before = tl.load(room + row[None, :] * BLOCK_V + j[:, None])
        dW += dot(before, dX, PRECISION)
    tl.store(dw_ptrs, dW, square)
    at = tl.arange(0, EVERY)
    dv = tl.zeros([EVERY, BLOCK_V], tl.float32)
    # v_t's is k_tᵀ dX_t. A loop of its own: Triton gives a tile that products of two kinds read too few buffers.
    for first in tl.range(0, EVERY * BLOCK_K, ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        step, key = row // BLOCK_K, first_key + row % BLOCK_K
        dX = tl.load(room + EVERY * SIZE + row[:, None] * BLOCK_V + j[None, :])
        k = tl.load(k_ptr + step.to(tl.int64) * k_T + key, (step < steps) & (key < K), 0.0).to(tl.float32)
        dv += dot(tl.where(at[:, None] == step[None, :], k[None, :], 0.0), dX, PRECISION)
    dv_ptrs = dv_ptr + at.to(tl.int64)[:, None] * dv_T + j[None, :]
    tl.store(dv_ptrs, dv.to(dv_ptr.dtype.element_ty), (at < steps)[:, None] & (j < V)[None, :])


@triton.jit(do_not_specialize=["T", "rows", "marks"])
def backward_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, kept_ptr, room_ptr, q_ptr, k_ptr, v_ptr, f_ptr, w_ptr,
    dq_ptr, dk_ptr, dv_ptr, df_ptr, dw_ptr, dstate_ptr,
    T, H, rows, heads_of_group, marks, bound,
    dy_B, dy_T, dy_H, q_B, q_T, q_G, k_B, k_T, k_G, v_B, v_T, v_H, f_B, f_T, f_H,
    K: tl.constexpr, V: tl.constexpr, HAS_F: tl.constexpr, EVERY: tl.constexpr, TILES: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    CLIP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    group, lane, tile = head // heads_of_group, b // rows, 0 if TILES == 1 else tl.program_id(2)
    i, j = tile * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    keys, values = i < K, j < V
    mask, square = keys[:, None] & values[None, :], values[:, None] & values[None, :]
    w_ptr += (lane * H + head) * V * V
    of_state = i[:, None] * V + j[None, :]
    of_head = (b * H + head) * K * V
    carried = tl.load(dlast_ptr + of_head + of_state, mask, 0.0).to(tl.float32)
    of_program = (b * H + head) * TILES + tile
    room = room_ptr + of_program * 2 * EVERY * BLOCK_K * BLOCK_V
    q_ptr += b * q_B + group * q_G
    k_ptr += b * k_B + group * k_G
    v_ptr += b * v_B + head * v_H
    f_ptr += b * f_B + head * f_H
    dy_ptr += b * dy_B + head * dy_H
    dw_ptr += of_program * V * V
    first = b * T * H + head
    # To be fetched ahead: one number of each 32 brings the others along.
    of_keys = tile * BLOCK_K + 32 * tl.arange(0, (BLOCK_K + 31) // 32)[None, :]
    of_values = 32 * tl.arange(0, (BLOCK_V + 31) // 32)[None, :]
    for segment in tl.range(marks, disable_licm=True):
        mark = marks - 1 - segment
        begin = mark.to(tl.int64) * EVERY
        steps = tl.minimum(T - mark * EVERY, EVERY)
        end = begin + steps - 1
        # The segment before this one is the next.
        soon = tl.minimum(tl.maximum(begin - EVERY, 0) + tl.arange(0, EVERY), T - 1)[:, None]
        fetch_ahead(q_ptr + soon * q_T + of_keys)
        fetch_ahead(k_ptr + soon * k_T + of_keys)
        fetch_ahead(v_ptr + soon * v_T + of_values)
        fetch_ahead(dy_ptr + soon * dy_T + of_values)
        S = tl.load(kept_ptr + ((b * marks + mark) * H + head) * K * V + of_state, mask, 0.0)
        _states(
            S, w_ptr + j[:, None] * V + j[None, :], square, k_ptr + begin * k_T, v_ptr + begin * v_T,
            f_ptr + begin * f_T, dy_ptr + begin * dy_T, dq_ptr + (first + begin * H) * K, room,
            i, j, keys, values, steps, k_T, v_T, f_T, dy_T, H * K, HAS_F, EVERY, PRECISION,
        )  # fmt: skip
        # What other threads of this program wrote must be seen before it is read.
        tl.debug_barrier()
        carried = _states_back(
            carried, w_ptr + j[None, :] * V + j[:, None], square, q_ptr + end * q_T, v_ptr + end * v_T,
            f_ptr + end * f_T, dy_ptr + end * dy_T, dk_ptr + (first + end * H) * K, df_ptr + (first + end * H) * K,
            room + (steps - 1) * BLOCK_K * BLOCK_V, i, j, keys, values, steps, bound, q_T, v_T, f_T, dy_T, H * K,
            HAS_F, EVERY, PRECISION, CLIP, STAGES,
        )  # fmt: skip
        tl.debug_barrier()
        _products(
            dw_ptr + j[:, None] * V + j[None, :], square, segment == 0, k_ptr + begin * k_T,
            dv_ptr + ((first + begin * H) * TILES + tile) * V, room, tile * BLOCK_K, j, steps, k_T, H * TILES * V,
            K, V, EVERY, BLOCK_K, BLOCK_V, ROWS, PRECISION, STAGES,
        )  # fmt: skip
        tl.debug_barrier()
    tl.store(dstate_ptr + of_head + of_state, carried.to(dstate_ptr.dtype.element_ty), mask)
