"""The tanh RNN as Triton kernels that are sequential in time: weights and state stay on chip.

Legend: B rows, T time, H heads, K head width, L lanes (rows of a lane share weights), R rows of a lane, S shares
of a sum. A program takes a block of rows of one lane and one head, so that a step is a product of a `[rows, K]`
tile with W. The backward keeps y alone: the input's gradient gives W's afterwards, as one sum over all steps.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statelab.kernels.clip import ClipAt
from statelab.kernels.dot import dot
from statelab.kernels.elementary import clipped_sum, tanh
from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.time_product import blocks_of, time_product, width_of


def recurrent(
    x_BTHK: Tensor,
    weight_HKK: Tensor,
    state_BHK: Tensor,
    clip: float | None,
    clip_at: ClipAt,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """See `rnn`; tensors of any float dtype up to float32."""
    y_BTHK, last_BHK = _forward(
        x_BTHK, weight_HKK[None], state_BHK, clip or 0.0, clip_at if clip else "", precision
    )
    return y_BTHK, last_BHK


@triton.jit(do_not_specialize=["T", "rows"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, w_ptr, state_ptr, y_ptr, last_ptr,
    T, H, K, rows,
    x_B, x_T, x_H,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(rows, BLOCK_B)
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) % blocks) * BLOCK_B + tl.arange(0, BLOCK_B)
    b, k = lane * rows + row, tl.arange(0, BLOCK_K)
    mask = (row < rows)[:, None] & (k < K)[None, :]
    square = (k < K)[:, None] & (k < K)[None, :]
    w = tl.load(w_ptr + (lane * H + head) * K * K + k[:, None] * K + k[None, :], square, 0.0).to(tl.float32)
    of_state = (b[:, None] * H + head) * K + k[None, :]
    h = tl.load(state_ptr + of_state, mask, 0.0).to(tl.float32)
    x_ptrs = x_ptr + b[:, None] * x_B + head * x_H + k[None, :]
    y_ptrs = y_ptr + (b[:, None] * T * H + head) * K + k[None, :]
    for _ in tl.range(0, T, num_stages=STAGES):
        x = tl.load(x_ptrs, mask, 0.0).to(tl.float32)
        h = tanh(dot(h, w, PRECISION) + x, PRECISION)
        tl.store(y_ptrs, h.to(y_ptr.dtype.element_ty), mask)
        x_ptrs += x_T
        y_ptrs += H * K
    tl.store(last_ptr + of_state, h, mask)


@triton.jit(do_not_specialize=["T", "rows"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, y_ptr, w_ptr, dx_ptr, dstate_ptr,
    T, H, K, rows, bound,
    dy_B, dy_T, dy_H,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
    CLIP: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(rows, BLOCK_B)
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) % blocks) * BLOCK_B + tl.arange(0, BLOCK_B)
    b, k = lane * rows + row, tl.arange(0, BLOCK_K)
    mask = (row < rows)[:, None] & (k < K)[None, :]
    square = (k < K)[:, None] & (k < K)[None, :]
    # Read transposed.
    w = tl.load(w_ptr + (lane * H + head) * K * K + k[None, :] * K + k[:, None], square, 0.0).to(tl.float32)
    of_state = (b[:, None] * H + head) * K + k[None, :]
    carried = tl.load(dlast_ptr + of_state, mask, 0.0).to(tl.float32)
    dy_ptrs = dy_ptr + b[:, None] * dy_B + head * dy_H + k[None, :] + (T - 1).to(tl.int64) * dy_T
    last = ((b[:, None] * T + T - 1) * H + head) * K + k[None, :]
    y_ptrs, dx_ptrs = y_ptr + last, dx_ptr + last
    for _ in tl.range(0, T, num_stages=STAGES):
        dy = tl.load(dy_ptrs, mask, 0.0).to(tl.float32)
        h = tl.load(y_ptrs, mask, 0.0).to(tl.float32)
        dx = clipped_sum(dy, carried, bound, CLIP) * (1.0 - h * h)
        tl.store(dx_ptrs, dx.to(dx_ptr.dtype.element_ty), mask)
        carried = dot(dx, w, PRECISION)
        dy_ptrs -= dy_T
        y_ptrs -= H * K
        dx_ptrs -= H * K
    tl.store(dstate_ptr + of_state, carried.to(dstate_ptr.dtype.element_ty), mask)


@torch.library.custom_op("statelab::rnn_forward", mutates_args=())
def _forward(
    x_BTHK: Tensor, weight_LHKK: Tensor, state_BHK: Tensor, bound: float, clip: str, precision: str
) -> tuple[Tensor, Tensor]:
    B, T, H, K = x_BTHK.shape
    lanes = weight_LHKK.shape[0]
    y_BTHK, last_BHK = _empty(x_BTHK)
    x_BTHK = rows_last_contiguous(x_BTHK)
    rows, (block, warps) = B // lanes, blocks_of(B // lanes, lanes * H, K, most=32)
    _forward_kernel[lanes * triton.cdiv(rows, block), H](
        x_BTHK, weight_LHKK.contiguous(), state_BHK.contiguous(), y_BTHK, last_BHK,
        T, H, K, rows, *x_BTHK.stride()[:3],
        BLOCK_B=block, BLOCK_K=width_of(K), STAGES=4, PRECISION=precision, num_warps=warps,
    )  # fmt: skip
    return y_BTHK, last_BHK


def _empty(x_BTHK: Tensor) -> tuple[Tensor, Tensor]:
    B, _, H, K = x_BTHK.shape
    return x_BTHK.new_empty(x_BTHK.shape), x_BTHK.new_empty((B, H, K), dtype=torch.float32)


@_forward.register_fake
def _(
    x_BTHK: Tensor, weight_LHKK: Tensor, state_BHK: Tensor, bound: float, clip: str, precision: str
) -> tuple[Tensor, Tensor]:
    return _empty(x_BTHK)


@torch.library.custom_op("statelab::rnn_backward", mutates_args=())
def _backward(
    dy_BTHK: Tensor,
    dlast_BHK: Tensor,
    y_BTHK: Tensor,
    weight_LHKK: Tensor,
    state_BHK: Tensor,
    bound: float,
    clip: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    B, T, H, K = y_BTHK.shape
    lanes = weight_LHKK.shape[0]
    state_BHK, y_BTHK = state_BHK.contiguous(), y_BTHK.contiguous()
    dx_BTHK, dstate_BHK = y_BTHK.new_empty(y_BTHK.shape), state_BHK.new_empty(state_BHK.shape)
    dy_BTHK = rows_last_contiguous(dy_BTHK)
    rows, (block, warps) = B // lanes, blocks_of(B // lanes, lanes * H, K, most=32)
    _backward_kernel[lanes * triton.cdiv(rows, block), H](
        dy_BTHK, dlast_BHK.contiguous(), y_BTHK, weight_LHKK.contiguous(), dx_BTHK, dstate_BHK,
        T, H, K, rows, bound, *dy_BTHK.stride()[:3],
        BLOCK_B=block, BLOCK_K=width_of(K), STAGES=4, PRECISION=precision, CLIP=clip, num_warps=warps,
    )  # fmt: skip
    dweight_LHKK = time_product(state_BHK, y_BTHK, None, dx_BTHK, lanes, precision)
    return dx_BTHK, dweight_LHKK.to(weight_LHKK.dtype), dstate_BHK


@_backward.register_fake
def _(
    dy_BTHK: Tensor, dlast_BHK: Tensor, y_BTHK: Tensor, weight_LHKK: Tensor, state_BHK: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (y_BTHK, weight_LHKK, state_BHK))  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, weight_LHKK, state_BHK, *ctx.settings = inputs
    ctx.save_for_backward(output[0], weight_LHKK, state_BHK)


def _gradients(ctx: Any, dy_BTHK: Tensor, dlast_BHK: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(dy_BTHK, dlast_BHK, *ctx.saved_tensors, *ctx.settings), None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
