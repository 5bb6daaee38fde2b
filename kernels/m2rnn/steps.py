"""M²RNN in Triton: a program takes some keys of one row and head through all steps.

Legend: B rows, T time, H heads, G groups of heads, K key width, V value width; `rows` of a lane share weights. A key's
line of the state, `[V]`, goes through time without the others: they meet in y, and in the gradients of v, f and
W, which every program gives its share of.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.elementary import fetch_ahead, tanh

FAR = tl.constexpr(8)
"""How many steps ahead the inputs of a step are brought near."""


@triton.jit(do_not_specialize=["T", "rows", "marks"])
def forward_kernel(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, f_ptr, w_ptr, state_ptr, y_ptr, last_ptr, kept_ptr,
    T, H, rows, heads_of_group, marks,
    q_B, q_T, q_G, k_B, k_T, k_G, v_B, v_T, v_H, f_B, f_T, f_H,
    K: tl.constexpr, V: tl.constexpr, HAS_F: tl.constexpr, EVERY: tl.constexpr, TILES: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    group, lane, tile = head // heads_of_group, b // rows, 0 if TILES == 1 else tl.program_id(2)
    i, j = tile * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    keys, values = i < K, j < V
    mask = keys[:, None] & values[None, :]
    of_w = (lane * H + head) * V * V + j[:, None] * V + j[None, :]
    W = tl.load(w_ptr + of_w, values[:, None] & values[None, :], 0.0).to(tl.float32)
    of_state = i[:, None] * V + j[None, :]
    of_head = (b * H + head) * K * V
    S = tl.load(state_ptr + of_head + of_state, mask, 0.0).to(tl.float32)
    q_ptrs, k_ptrs = q_ptr + b * q_B + group * q_G + i, k_ptr + b * k_B + group * k_G + i
    v_ptrs, f_ptrs = v_ptr + b * v_B + head * v_H + j, f_ptr + b * f_B + head * f_H
    y_ptrs = y_ptr + ((b * T * H + head) * TILES + tile) * V + j
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
        y_ptrs += H * TILES * V
        q, k, v = next_q, next_k, next_v
    tl.store(last_ptr + of_head + of_state, S, mask)
