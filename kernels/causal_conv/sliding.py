"""The causal convolution and its SiLU in one Triton kernel each way: nothing between them is written to memory.

The backward makes the sums before SiLU again. Legend: B rows, T time, C channels, J taps, P = J − 1 inputs before the
sequence, L lanes (rows of a lane share weights), N stretches of all rows of a lane.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.causal_conv.stretches import backward_kernel, forward_kernel, sum_kernel
from statelab.kernels.lanes import lift, rows_last_contiguous

SHORTEST, LONGEST = 16, 256
"""Steps of a stretch: a shorter one is mostly what it has to read around itself."""
FORWARD, BACKWARD = (4, 8, 3584), (2, 4, 3072)
"""Channels of a thread at most, steps read together, and warps to aim at, which an H200 holds all at once: a thread
has 72 and 64 registers for 16-bit inputs, up to 80 for float32, more with a state, which is not a training step's.
"""


def sliding(
    x_BTC: Tensor, weight_JC: Tensor, bias_C: Tensor | None, state_BPC: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """See `causal_conv`; tensors of any float dtype up to float32."""
    bias_LC = None if bias_C is None else bias_C[None]
    y_BTC, last_BPC = _forward(x_BTC, weight_JC[None], bias_LC, state_BPC, silu)
    return y_BTC, last_BPC


def plan(
    x_BTC: Tensor, steps: int, taps: int, held: int, together: int, warps: int
) -> tuple[int, dict[str, int]]:
    """Steps of a stretch, a multiple of `together`, and the tile of a program, which is one warp."""
    rows, _, channels = x_BTC.shape
    # A thread holds several channels where they load as one: Triton sees that of multiples of 16 alone.
    aligned = all(size % 16 == 0 for size in (channels, *x_BTC.stride()[:2]))
    most = min(held, 8 // x_BTC.element_size()) if aligned and taps <= 4 else 1
    counts = [count for count in (4, 2, 1) if count <= most]
    held = min(counts, key=lambda count: triton.cdiv(channels, 32 * count) * count)
    width = min(32 * held, triton.next_power_of_2(channels))
    beside = 32 * held // width
    fill = max(1, warps * beside // (rows * triton.cdiv(channels, width)))
    blocks = max(triton.cdiv(steps, LONGEST), min(fill, triton.cdiv(steps, SHORTEST)))
    stretch = triton.cdiv(triton.cdiv(steps, blocks), together) * together
    return stretch, {"U": together, "N": beside, "W": width, "num_warps": 1}


@torch.library.custom_op(
    "statelab::causal_conv_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool silu) -> (Tensor, Tensor)",
)
def _forward(
    x_BTC: Tensor, weight_LJC: Tensor, bias_LC: Tensor | None, state_BPC: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """Outputs in the dtype of x, and the last inputs in float32."""
    B, T, C = x_BTC.shape
    L, J, _ = weight_LJC.shape
    y_BTC, last_BPC = _outputs(x_BTC, weight_LJC)
    x_BTC, weight_LJC = rows_last_contiguous(x_BTC), weight_LJC.contiguous()
    stretch, tile = plan(x_BTC, T, J, *FORWARD)
    total = B * triton.cdiv(T, stretch)
    grid = (triton.cdiv(total, tile["N"]) * triton.cdiv(C, tile["W"]),)
    with torch.cuda.device_of(x_BTC):
        forward_kernel[grid](
            x_BTC, weight_LJC, *_dense(weight_LJC, bias_LC, state_BPC), y_BTC, last_BPC,
            T, C, B // L, total, stretch, *x_BTC.stride()[:2],
            J=J, SILU=silu, HAS_BIAS=bias_LC is not None, HAS_STATE=state_BPC is not None, **tile,
        )  # fmt: skip
    return y_BTC, last_BPC


def _outputs(x_BTC: Tensor, weight_LJC: Tensor) -> tuple[Tensor, Tensor]:
    B, _, C = x_BTC.shape
    last_BPC = x_BTC.new_empty(B, weight_LJC.shape[1] - 1, C, dtype=torch.float32)
    return x_BTC.new_empty(x_BTC.shape), last_BPC


def _dense(weight_LJC: Tensor, *given: Tensor | None) -> tuple[Tensor, ...]:
    """What is given, dense; for what is not, any pointer: no kernel follows it."""
    return tuple(weight_LJC if tensor is None else tensor.contiguous() for tensor in given)


@_forward.register_fake
def _(x_BTC: Tensor, weight_LJC: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _outputs(x_BTC, weight_LJC)


@torch.library.custom_op(
    "statelab::causal_conv_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor? dlast, Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool silu)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def _backward(
    dy_BTC: Tensor,
    dlast_BPC: Tensor | None,
    x_BTC: Tensor,
    weight_LJC: Tensor,
    bias_LC: Tensor | None,
    state_BPC: Tensor | None,
    silu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and state, in their dtypes; the last two empty where there is none."""
    B, T, C = x_BTC.shape
    L, J, _ = weight_LJC.shape
    dx_BTC, dweight_LJC, dbias_LC, dstate_BPC = _gradients_of(x_BTC, weight_LJC, bias_LC, state_BPC)
    dy_BTC, x_BTC, weight_LJC = (
        rows_last_contiguous(dy_BTC),
        rows_last_contiguous(x_BTC),
        weight_LJC.contiguous(),
    )
    steps = T if state_BPC is None else T + J - 1
    stretch, tile = plan(x_BTC, steps, J, *BACKWARD)
    total = B * triton.cdiv(steps, stretch)
    sums = J + (bias_LC is not None)
    parts_LNJC = x_BTC.new_empty(L, total // L, sums, C, dtype=torch.float32)
    dlast, bias, state = _dense(weight_LJC, dlast_BPC, bias_LC, state_BPC)
    of_both = {"J": J, "HAS_BIAS": bias_LC is not None}
    with torch.cuda.device_of(x_BTC):
        backward_kernel[(triton.cdiv(total, tile["N"]) * triton.cdiv(C, tile["W"]),)](
            dy_BTC, dlast, x_BTC, weight_LJC, bias, state, dx_BTC, dstate_BPC, parts_LNJC,
            T, C, B // L, total, stretch, *dy_BTC.stride()[:2], *x_BTC.stride()[:2],
            SILU=silu, HAS_STATE=state_BPC is not None, HAS_DLAST=dlast_BPC is not None, **of_both, **tile,
        )  # fmt: skip
        sum_kernel[(triton.cdiv(sums * C, 16), L)](
            parts_LNJC, dweight_LJC, dbias_LC, total // L, C, **of_both,
            N=min(256, triton.next_power_of_2(total // L)), W=16, num_warps=8,
        )  # fmt: skip
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
def _(dy_BTC: Tensor, dlast_BPC: Tensor | None, *tensors: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients_of(*tensors[:4])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.silu = inputs
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy_BTC: Tensor | None, dlast_BPC: Tensor | None) -> tuple[Tensor | None, ...]:
    x_BTC, _, bias_LC, state_BPC = ctx.saved_tensors
    dy_BTC = torch.zeros_like(x_BTC) if dy_BTC is None else dy_BTC
    dx, dweight, dbias, dstate = _backward(dy_BTC, dlast_BPC, *ctx.saved_tensors, ctx.silu)
    return dx, dweight, None if bias_LC is None else dbias, None if state_BPC is None else dstate, None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
