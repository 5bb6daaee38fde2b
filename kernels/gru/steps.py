"""The GRU's Triton kernels: a program takes a block of rows of one lane and one head through all steps.

Legend: B rows, T time, H heads, K head width; `rows` of a lane share weights. A step is a product of a `[rows, K]`
tile with each of the three weights, two of them at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.elementary import clipped_sum, sigmoid, tanh


@triton.jit(do_not_specialize=["T", "rows"])
def forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, reset_ptr, forget_ptr, w_ptr, reset_w_ptr, forget_w_ptr, state_ptr,
    y_ptr, last_ptr, r_ptr, f_ptr, z_ptr,
    T, H, K, rows,
    x_B, x_T, x_H, reset_B, reset_T, reset_H, forget_B, forget_T, forget_H,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
    HELD: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(rows, BLOCK_B)
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) % blocks) * BLOCK_B + tl.arange(0, BLOCK_B)
    b, k = lane * rows + row, tl.arange(0, BLOCK_K)
    mask = (row < rows)[:, None] & (k < K)[None, :]
    square = (k < K)[:, None] & (k < K)[None, :]
    of_w = (lane * H + head) * K * K + k[:, None] * K + k[None, :]
    w = tl.load(w_ptr + of_w, square, 0.0).to(tl.float32)
    reset_w = tl.load(reset_w_ptr + of_w, square, 0.0).to(tl.float32)
    forget_w = tl.load(forget_w_ptr + of_w, square, 0.0).to(tl.float32)
    of_state = (b[:, None] * H + head) * K + k[None, :]
    h = tl.load(state_ptr + of_state, mask, 0.0).to(tl.float32)
    x_ptrs = x_ptr + b[:, None] * x_B + head * x_H + k[None, :]
    reset_ptrs = reset_ptr + b[:, None] * reset_B + head * reset_H + k[None, :]
    forget_ptrs = forget_ptr + b[:, None] * forget_B + head * forget_H + k[None, :]
    at = (b[:, None] * T * H + head) * K + k[None, :]
    for _ in tl.range(0, T, num_stages=STAGES):
        if not HELD:
            w = tl.load(w_ptr + of_w, square, 0.0).to(tl.float32)
            reset_w = tl.load(reset_w_ptr + of_w, square, 0.0).to(tl.float32)
            forget_w = tl.load(forget_w_ptr + of_w, square, 0.0).to(tl.float32)
        x = tl.load(x_ptrs, mask, 0.0).to(tl.float32)
        reset = tl.load(reset_ptrs, mask, 0.0).to(tl.float32)
        forget = tl.load(forget_ptrs, mask, 0.0).to(tl.float32)
        r = sigmoid(dot(h, reset_w, PRECISION) + reset)
        f = sigmoid(dot(h, forget_w, PRECISION) + forget)
        z = tanh(dot(h * r, w, PRECISION) + x, PRECISION)
        h = z + f * (h - z)
        tl.store(r_ptr + at, r.to(r_ptr.dtype.element_ty), mask)
        tl.store(f_ptr + at, f.to(f_ptr.dtype.element_ty), mask)
        tl.store(z_ptr + at, z.to(z_ptr.dtype.element_ty), mask)
        tl.store(y_ptr + at, h.to(y_ptr.dtype.element_ty), mask)
        x_ptrs += x_T
        reset_ptrs += reset_T
        forget_ptrs += forget_T
        at += H * K
    tl.store(last_ptr + of_state, h, mask)


@triton.jit(do_not_specialize=["T", "rows"])
def backward_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, state_ptr, y_ptr, r_ptr, f_ptr, z_ptr, w_ptr, reset_w_ptr, forget_w_ptr,
    dx_ptr, dreset_ptr, dforget_ptr, dstate_ptr,
    T, H, K, rows, bound,
    dy_B, dy_T, dy_H,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
    CLIP: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(rows, BLOCK_B)
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) % blocks) * BLOCK_B + tl.arange(0, BLOCK_B)
    b, k = lane * rows + row, tl.arange(0, BLOCK_K)
    mask = (row < rows)[:, None] & (k < K)[None, :]
    square = (k < K)[:, None] & (k < K)[None, :]
    # Read transposed.
    of_w = (lane * H + head) * K * K + k[None, :] * K + k[:, None]
    w = tl.load(w_ptr + of_w, square, 0.0).to(tl.float32)
    reset_w = tl.load(reset_w_ptr + of_w, square, 0.0).to(tl.float32)
    forget_w = tl.load(forget_w_ptr + of_w, square, 0.0).to(tl.float32)
    of_state = (b[:, None] * H + head) * K + k[None, :]
    first = tl.load(state_ptr + of_state, mask, 0.0).to(tl.float32)
    carried = tl.load(dlast_ptr + of_state, mask, 0.0).to(tl.float32)
    dy_ptrs = dy_ptr + b[:, None] * dy_B + head * dy_H + k[None, :] + (T - 1).to(tl.int64) * dy_T
    at = ((b[:, None] * T + T - 1) * H + head) * K + k[None, :]
    for step in tl.range(0, T, num_stages=STAGES):
        if not HELD:
            w = tl.load(w_ptr + of_w, square, 0.0).to(tl.float32)
            reset_w = tl.load(reset_w_ptr + of_w, square, 0.0).to(tl.float32)
            forget_w = tl.load(forget_w_ptr + of_w, square, 0.0).to(tl.float32)
        dy = tl.load(dy_ptrs, mask, 0.0).to(tl.float32)
        r = tl.load(r_ptr + at, mask, 0.0).to(tl.float32)
        f = tl.load(f_ptr + at, mask, 0.0).to(tl.float32)
        z = tl.load(z_ptr + at, mask, 0.0).to(tl.float32)
        h = tl.load(y_ptr + at - H * K, mask & (step < T - 1), 0.0).to(tl.float32)
        h = tl.where(step < T - 1, h, first)
        dh = clipped_sum(dy, carried, bound, CLIP)
        dx = dh * (1.0 - f) * (1.0 - z * z)
        dforget = dh * (h - z) * f * (1.0 - f)
        carried = dh * f + dot(dforget, forget_w, PRECISION)
        dgated = dot(dx, w, PRECISION)
        dreset = dgated * h * r * (1.0 - r)
        carried += dgated * r
        carried += dot(dreset, reset_w, PRECISION)
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask)
        tl.store(dreset_ptr + at, dreset.to(dreset_ptr.dtype.element_ty), mask)
        tl.store(dforget_ptr + at, dforget.to(dforget_ptr.dtype.element_ty), mask)
        dy_ptrs -= dy_T
        at -= H * K
    tl.store(dstate_ptr + of_state, carried.to(dstate_ptr.dtype.element_ty), mask)
