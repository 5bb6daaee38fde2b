"""The causal convolution and its SiLU as one Triton kernel each way: nothing between them is written to memory.

A program takes a tile of steps and channels of one row. The backward makes the sums before SiLU again, of its own
steps and of the J − 1 after them, whose gradients reach its inputs. Legend: B rows, T time, C channels, J taps,
P = J − 1 inputs before the sequence, L lanes (rows of a lane share weights), N blocks of steps.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statelab.kernels.elementary import sigmoid
from statelab.kernels.lanes import lift, rows_last_contiguous

STEPS, CHANNELS = 64, 32
"""Of a program's tile, at most."""


def sliding(
    x_BTC: Tensor, weight_JC: Tensor, bias_C: Tensor | None, state_BPC: Tensor | None, silu: bool
) -> Tensor:
    """The convolution's outputs, see `causal_conv`; tensors of any float dtype up to float32."""
    y_BTC: Tensor = _forward(
        x_BTC, weight_JC[None], None if bias_C is None else bias_C[None], state_BPC, silu
    )
    return y_BTC


@triton.jit
def _inputs(x_ptr, x_T, state_ptr, t, c, T, C, P: tl.constexpr, HAS_STATE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Inputs of the steps t, in float32: before the sequence those of the state, past its end zeros."""
    inside = (t >= 0) & (t < T)
    x = tl.load(x_ptr + t[:, None] * x_T + c[None, :], inside[:, None] & (c < C)[None, :], 0.0).to(tl.float32)
    if HAS_STATE:
        early = ((t < 0) & (t >= -P))[:, None] & (c < C)[None, :]
        x += tl.load(state_ptr + (t + P)[:, None] * C + c[None, :], early, 0.0).to(tl.float32)
    return x


@triton.jit
def _before_silu(  # type: ignore[no-untyped-def]
    x_ptr, x_T, state_ptr, w_ptr, bias_ptr, t, AHEAD: tl.constexpr, c, T, C,
    J: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_STATE: tl.constexpr,
):  # fmt: skip
    """bias + Σ_j weight[j] ⊙ x of the steps t + AHEAD."""
    total = tl.zeros([t.shape[0], c.shape[0]], tl.float32)
    if HAS_BIAS:
        total += tl.load(bias_ptr + c, c < C, 0.0).to(tl.float32)[None, :]
    for j in tl.static_range(J):
        w = tl.load(w_ptr + j * C + c, c < C, 0.0).to(tl.float32)
        # The shift is one constant, so that the compiler sees which of the backward's loads are the same.
        total += w[None, :] * _inputs(
            x_ptr, x_T, state_ptr, t + (AHEAD + j - J + 1), c, T, C, J - 1, HAS_STATE
        )
    return total


@triton.jit(do_not_specialize=["T", "rows"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, w_ptr, bias_ptr, state_ptr, y_ptr, T, C, rows, x_B, x_T,
    J: tl.constexpr, SILU: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_STATE: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) // tl.cdiv(T, BLOCK_T)).to(tl.int64)
    lane = b // rows
    t = (tl.program_id(0) % tl.cdiv(T, BLOCK_T)) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    y = _before_silu(
        x_ptr + b * x_B, x_T, state_ptr + b * (J - 1) * C, w_ptr + lane * J * C, bias_ptr + lane * C,
        t, 0, c, T, C, J, HAS_BIAS, HAS_STATE,
    )  # fmt: skip
    if SILU:
        y *= sigmoid(y)
    at = y_ptr + b * T * C + t[:, None] * C + c[None, :]
    tl.store(at, y.to(y_ptr.dtype.element_ty), (t < T)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=["T", "rows"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, x_ptr, w_ptr, bias_ptr, state_ptr, dx_ptr, dparts_ptr, dstate_ptr, T, C, rows, dy_B, dy_T, x_B, x_T,
    J: tl.constexpr, SILU: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_STATE: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    # A state's places are the steps before the first.
    P: tl.constexpr = J - 1 if HAS_STATE else 0
    blocks = tl.cdiv(T + P, BLOCK_T)
    b, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    lane = b // rows
    t = block * BLOCK_T + tl.arange(0, BLOCK_T) - P
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    x_ptr += b * x_B
    dy_ptr += b * dy_B
    state_ptr += b * (J - 1) * C
    w_ptr += lane * J * C
    bias_ptr += lane * C
    # With each block's own sums: weight's J rows, then the bias's.
    dparts_ptr += (b * blocks + block) * (J + HAS_BIAS) * C + c
    dx = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for ahead in tl.static_range(J):
        later = t + ahead
        at = dy_ptr + later[:, None] * dy_T + c[None, :]
        d = tl.load(at, ((later >= 0) & (later < T))[:, None] & (c < C)[None, :], 0.0).to(tl.float32)
        if SILU:
            total = _before_silu(
                x_ptr, x_T, state_ptr, w_ptr, bias_ptr, t, ahead, c, T, C, J, HAS_BIAS, HAS_STATE
            )
            s = sigmoid(total)
            d *= s * (1.0 + total * (1.0 - s))
        w = tl.load(w_ptr + (J - 1 - ahead) * C + c, c < C, 0.0).to(tl.float32)
        dx += w[None, :] * d
        if ahead == 0:
            for j in tl.static_range(J):
                x = _inputs(x_ptr, x_T, state_ptr, t + (j - J + 1), c, T, C, J - 1, HAS_STATE)
                tl.store(dparts_ptr + j * C, tl.sum(d * x, axis=0), c < C)
            if HAS_BIAS:
                tl.store(dparts_ptr + J * C, tl.sum(d, axis=0), c < C)
    mask = ((t >= 0) & (t < T))[:, None] & (c < C)[None, :]
    tl.store(dx_ptr + b * T * C + t[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask)
    if HAS_STATE:
        to = dstate_ptr + b * P * C + (t + P)[:, None] * C + c[None, :]
        tl.store(to, dx.to(dstate_ptr.dtype.element_ty), (t < 0)[:, None] & (c < C)[None, :])


def _plan(time: int, channels: int) -> dict[str, int]:
    """A tile of 8 numbers a thread: with more, the backward's shifted inputs spill."""
    steps, width = triton.next_power_of_2(time), triton.next_power_of_2(channels)
    sizes = {"BLOCK_T": min(STEPS, steps), "BLOCK_C": min(CHANNELS, width)}
    return {**sizes, "num_warps": max(1, sizes["BLOCK_T"] * sizes["BLOCK_C"] // 256)}


@torch.library.custom_op(
    "statelab::causal_conv_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool silu) -> Tensor",
)
def _forward(
    x_BTC: Tensor, weight_LJC: Tensor, bias_LC: Tensor | None, state_BPC: Tensor | None, silu: bool
) -> Tensor:
    B, T, C = x_BTC.shape
    L, J, _ = weight_LJC.shape
    y_BTC = x_BTC.new_empty(x_BTC.shape)
    x_BTC, weight_LJC = rows_last_contiguous(x_BTC), weight_LJC.contiguous()
    sizes = _plan(T, C)
    grid = (B * triton.cdiv(T, sizes["BLOCK_T"]), triton.cdiv(C, sizes["BLOCK_C"]))
    with torch.cuda.device_of(x_BTC):
        _forward_kernel[grid](
            x_BTC, weight_LJC, *_dense(weight_LJC, bias_LC, state_BPC), y_BTC, T, C, B // L, *x_BTC.stride()[:2],
            J=J, SILU=silu, HAS_BIAS=bias_LC is not None, HAS_STATE=state_BPC is not None, **sizes,
        )  # fmt: skip
    return y_BTC


def _dense(weight_LJC: Tensor, *given: Tensor | None) -> tuple[Tensor, ...]:
    """What is given, dense; for what is not, any pointer: no kernel follows it."""
    return tuple(weight_LJC if tensor is None else tensor.contiguous() for tensor in given)


@_forward.register_fake
def _(x_BTC: Tensor, *_: Any) -> Tensor:
    return x_BTC.new_empty(x_BTC.shape)


@torch.library.custom_op(
    "statelab::causal_conv_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool silu)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def _backward(
    dy_BTC: Tensor,
    x_BTC: Tensor,
    weight_LJC: Tensor,
    bias_LC: Tensor | None,
    state_BPC: Tensor | None,
    silu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and state, in their dtypes; the last two empty where there is none."""
    B, T, C = x_BTC.shape
    L, J, _ = weight_LJC.shape
    sizes = _plan(T, C)
    blocks = triton.cdiv(T if state_BPC is None else T + J - 1, sizes["BLOCK_T"])
    dx_BTC, dweight_LJC, dbias_LC, dstate_BPC = _gradients_of(x_BTC, weight_LJC, bias_LC, state_BPC)
    shape = (L, B // L * blocks, J + (bias_LC is not None), C)
    dparts_LNJC = x_BTC.new_empty(shape, dtype=torch.float32)
    dy_BTC, x_BTC, weight_LJC = (
        rows_last_contiguous(dy_BTC),
        rows_last_contiguous(x_BTC),
        weight_LJC.contiguous(),
    )
    with torch.cuda.device_of(x_BTC):
        _backward_kernel[(B * blocks, triton.cdiv(C, sizes["BLOCK_C"]))](
            dy_BTC, x_BTC, weight_LJC, *_dense(weight_LJC, bias_LC, state_BPC), dx_BTC, dparts_LNJC, dstate_BPC,
            T, C, B // L, *dy_BTC.stride()[:2], *x_BTC.stride()[:2],
            J=J, SILU=silu, HAS_BIAS=bias_LC is not None, HAS_STATE=state_BPC is not None, **sizes,
        )  # fmt: skip
    sums_LJC = dparts_LNJC.sum(dim=1)
    dweight_LJC.copy_(sums_LJC[:, :J])
    if bias_LC is not None:
        dbias_LC.copy_(sums_LJC[:, J])
    return dx_BTC, dweight_LJC, dbias_LC, dstate_BPC


def _gradients_of(
    x_BTC: Tensor, weight_LJC: Tensor, bias_LC: Tensor | None, state_BPC: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        x_BTC.new_empty(x_BTC.shape),
        weight_LJC.new_empty(weight_LJC.shape),
        weight_LJC.new_empty(len(weight_LJC), 0) if bias_LC is None else bias_LC.new_empty(bias_LC.shape),
        x_BTC.new_empty(len(x_BTC), 0) if state_BPC is None else state_BPC.new_empty(state_BPC.shape),
    )


@_backward.register_fake
def _(dy_BTC: Tensor, *tensors: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients_of(*tensors[:4])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.silu = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, dy_BTC: Tensor) -> tuple[Tensor | None, ...]:
    _, _, bias_LC, state_BPC = ctx.saved_tensors
    dx, dweight, dbias, dstate = _backward(dy_BTC, *ctx.saved_tensors, ctx.silu)
    return dx, dweight, None if bias_LC is None else dbias, None if state_BPC is None else dstate, None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
