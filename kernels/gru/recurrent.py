"""The GRU's operators around its kernels, which are sequential in time: weights and state stay on chip.

Legend: B rows, T time, H heads, K head width, L lanes (rows of a lane share weights). A program takes 16 rows: with
more, the products of three weights spill. The forward keeps both gates and the candidate beside y, in y's dtype;
the gradients of the three inputs then give those of the three weights, each as one sum over all steps.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.clip import ClipAt
from statelab.kernels.gru.steps import backward_kernel, forward_kernel
from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.time_product import blocks_of, time_product, width_of


def recurrent(
    x_BTHK: Tensor,
    reset_BTHK: Tensor,
    forget_BTHK: Tensor,
    weights_HKK: tuple[Tensor, Tensor, Tensor],
    state_BHK: Tensor,
    clip: float | None,
    clip_at: ClipAt,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """See `gru`; tensors of any float dtype up to float32. Weights: the candidate's, the reset's, the forget's."""
    weights_LHKK = [weight[None] for weight in weights_HKK]
    settings = (clip or 0.0, clip_at if clip else "", precision)
    y_BTHK, last_BHK, *_ = _forward(x_BTHK, reset_BTHK, forget_BTHK, *weights_LHKK, state_BHK, *settings)
    return y_BTHK, last_BHK


@torch.library.custom_op("statelab::gru_forward", mutates_args=())
def _forward(
    x_BTHK: Tensor,
    reset_BTHK: Tensor,
    forget_BTHK: Tensor,
    weight_LHKK: Tensor,
    reset_weight_LHKK: Tensor,
    forget_weight_LHKK: Tensor,
    state_BHK: Tensor,
    bound: float,
    clip: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """y, the last state, then r, f and z of every step."""
    B, T, H, K = x_BTHK.shape
    lanes = weight_LHKK.shape[0]
    y_BTHK, last_BHK, r_BTHK, f_BTHK, z_BTHK = _empty(x_BTHK)
    inputs = [rows_last_contiguous(tensor) for tensor in (x_BTHK, reset_BTHK, forget_BTHK)]
    weights = [tensor.contiguous() for tensor in (weight_LHKK, reset_weight_LHKK, forget_weight_LHKK)]
    rows, (block, warps) = B // lanes, blocks_of(B // lanes, lanes * H, K, most=16)
    forward_kernel[lanes * triton.cdiv(rows, block), H](
        *inputs, *weights, state_BHK.contiguous(), y_BTHK, last_BHK, r_BTHK, f_BTHK, z_BTHK,
        T, H, K, rows, *(stride for tensor in inputs for stride in tensor.stride()[:3]),
        BLOCK_B=block, BLOCK_K=width_of(K), **_held(K, precision), PRECISION=precision, num_warps=warps,
    )  # fmt: skip
    return y_BTHK, last_BHK, r_BTHK, f_BTHK, z_BTHK


def _held(width: int, precision: str) -> dict[str, int | bool]:
    """Whether all three weights fit into shared memory, and how far ahead inputs are then read.

    Beyond a width of 64 they do so in bf16 alone: otherwise every step reads them from the second-level cache.
    """
    if width <= 64:
        return {"HELD": True, "STAGES": 3}
    return {"HELD": precision == "bf16", "STAGES": 2 if precision == "bf16" else 1}


def _empty(x_BTHK: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, _, H, K = x_BTHK.shape
    y_BTHK, r_BTHK, f_BTHK, z_BTHK = (x_BTHK.new_empty(x_BTHK.shape) for _ in range(4))
    return y_BTHK, x_BTHK.new_empty((B, H, K), dtype=torch.float32), r_BTHK, f_BTHK, z_BTHK


@_forward.register_fake
def _(x_BTHK: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _empty(x_BTHK)


@torch.library.custom_op("statelab::gru_backward", mutates_args=())
def _backward(
    dy_BTHK: Tensor,
    dlast_BHK: Tensor,
    y_BTHK: Tensor,
    r_BTHK: Tensor,
    f_BTHK: Tensor,
    z_BTHK: Tensor,
    weight_LHKK: Tensor,
    reset_weight_LHKK: Tensor,
    forget_weight_LHKK: Tensor,
    state_BHK: Tensor,
    reset_dtype: torch.dtype,
    forget_dtype: torch.dtype,
    bound: float,
    clip: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the three inputs, the three weights and the state."""
    B, T, H, K = y_BTHK.shape
    lanes = weight_LHKK.shape[0]
    kept = [tensor.contiguous() for tensor in (state_BHK, y_BTHK, r_BTHK, f_BTHK, z_BTHK)]
    state_BHK, y_BTHK, r_BTHK, *_ = kept
    gradients = [y_BTHK.new_empty(y_BTHK.shape, dtype=d) for d in (y_BTHK.dtype, reset_dtype, forget_dtype)]
    dstate_BHK = state_BHK.new_empty(state_BHK.shape)
    dy_BTHK = rows_last_contiguous(dy_BTHK)
    weights = [tensor.contiguous() for tensor in (weight_LHKK, reset_weight_LHKK, forget_weight_LHKK)]
    rows, (block, warps) = B // lanes, blocks_of(B // lanes, lanes * H, K, most=16)
    backward_kernel[lanes * triton.cdiv(rows, block), H](
        dy_BTHK, dlast_BHK.contiguous(), *kept, *weights, *gradients, dstate_BHK,
        T, H, K, rows, bound, *dy_BTHK.stride()[:3],
        BLOCK_B=block, BLOCK_K=width_of(K), **_held(K, precision), PRECISION=precision, CLIP=clip,
        num_warps=warps,
    )  # fmt: skip
    sums = [
        time_product(state_BHK, y_BTHK, scale, gradient, lanes, precision).to(weight.dtype)
        for scale, gradient, weight in zip((r_BTHK, None, None), gradients, weights, strict=True)
    ]
    return *gradients, *sums, dstate_BHK  # type: ignore[return-value]


@_backward.register_fake
def _(
    dy_BTHK: Tensor,
    dlast_BHK: Tensor,
    y_BTHK: Tensor,
    r_BTHK: Tensor,
    f_BTHK: Tensor,
    z_BTHK: Tensor,
    weight_LHKK: Tensor,
    reset_weight_LHKK: Tensor,
    forget_weight_LHKK: Tensor,
    state_BHK: Tensor,
    reset_dtype: torch.dtype,
    forget_dtype: torch.dtype,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    gradients = [y_BTHK.new_empty(y_BTHK.shape, dtype=d) for d in (y_BTHK.dtype, reset_dtype, forget_dtype)]
    others = (weight_LHKK, reset_weight_LHKK, forget_weight_LHKK, state_BHK)
    return *gradients, *(tensor.new_empty(tensor.shape) for tensor in others)  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, reset_BTHK, forget_BTHK, *weights_and_state, bound, clip, precision = inputs
    y_BTHK, _, *kept = output
    ctx.save_for_backward(y_BTHK, *kept, *weights_and_state)
    ctx.settings = (reset_BTHK.dtype, forget_BTHK.dtype, bound, clip, precision)


def _gradients(ctx: Any, dy_BTHK: Tensor, dlast_BHK: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(dy_BTHK, dlast_BHK, *ctx.saved_tensors, *ctx.settings), None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
