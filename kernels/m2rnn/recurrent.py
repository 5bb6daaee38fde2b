"""M²RNN's operators around its kernels, which are sequential in time: W and the state stay on chip.

Legend: B rows, T time, H heads, G groups of heads, K key width, V value width, L lanes (rows of a lane share weights),
J tiles of keys, C states kept by the forward. Every 16th state is kept; the backward computes those between again,
16 at a time, in memory that a program uses over and over. Wider keys are more programs, whose shares of y and of the
gradients of v and W are then summed in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.clip import ClipAt
from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.m2rnn.steps import forward_kernel
from statelab.kernels.m2rnn.steps_backward import backward_kernel

EVERY = 16
"""Steps between two states that are kept."""


def recurrent(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_HVV: Tensor,
    state_BHKV: Tensor,
    clip: float | None,
    clip_at: ClipAt,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """See `m2rnn`; tensors of any float dtype up to float32."""
    inputs = (q_BTGK, k_BTGK, v_BTHV, forget_BTH, weight_HVV[None], state_BHKV)
    y_BTHV, last_BHKV, _ = _forward(*inputs, clip or 0.0, clip_at if clip else "", precision)
    return y_BTHV, last_BHKV


def tiles_of(keys: int, values: int) -> tuple[int, int, int]:
    """Keys and values of a tile, and its warps.

    64 keys are what four of Hopper's warps multiply as one by a W in shared memory, each keeping its own keys: no
    value of the state passes from warp to warp. That costs a set-up, so that narrow values take 32 keys, in tiles of
    eight values a thread; and 64 rows beside 32 columns are what Triton 3.6 compiled wrongly for `kernels.ssd`.
    """
    block_k, block_v = (max(16, triton.next_power_of_2(width)) for width in (keys, values))
    if block_k >= 64 and block_v >= 64:
        return 64, block_v, block_v // 16
    block_k = min(block_k, 32, 2048 // block_v)
    return block_k, block_v, max(1, block_k * block_v // 256)


@torch.library.custom_op("statelab::m2rnn_forward", mutates_args=())
def _forward(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_LHVV: Tensor,
    state_BHKV: Tensor,
    bound: float,
    clip: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, then every 16th state from the first on."""
    B, T, H, V = v_BTHV.shape
    K = q_BTGK.shape[-1]
    y_BTHV, last_BHKV, kept_BCHKV = _empty(v_BTHV, state_BHKV)
    block_k, block_v, warps = tiles_of(K, V)
    tiles = triton.cdiv(K, block_k)
    shares = y_BTHV if tiles == 1 else v_BTHV.new_empty((B, T, H, tiles, V), dtype=torch.float32)
    inputs, strides = _strided(q_BTGK, k_BTGK, v_BTHV, forget_BTH)
    forward_kernel[B, H, tiles](
        *inputs, weight_LHVV.contiguous(), state_BHKV.contiguous(), shares, last_BHKV, kept_BCHKV,
        T, H, B // weight_LHVV.shape[0], H // q_BTGK.shape[2], kept_BCHKV.shape[1], *strides,
        K=K, V=V, HAS_F=forget_BTH is not None, EVERY=EVERY, TILES=tiles, BLOCK_K=block_k, BLOCK_V=block_v,
        PRECISION=precision, num_warps=warps,
    )  # fmt: skip
    return y_BTHV if tiles == 1 else shares.sum(3).to(v_BTHV.dtype), last_BHKV, kept_BCHKV


def _strided(
    q_BTGK: Tensor, k_BTGK: Tensor, v_BTHV: Tensor, forget_BTH: Tensor | None
) -> tuple[list[Tensor], list[int]]:
    """Inputs as the kernels want them, and all their strides but the last; f's place is never empty."""
    inputs = [rows_last_contiguous(tensor) for tensor in (q_BTGK, k_BTGK, v_BTHV)]
    inputs.append(inputs[2][..., 0] if forget_BTH is None else forget_BTH)
    return inputs, [stride for tensor in inputs for stride in tensor.stride()[:3]]


def _empty(v_BTHV: Tensor, state_BHKV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    B, T, _, _ = v_BTHV.shape
    kept = (B, (T + EVERY - 1) // EVERY, *state_BHKV.shape[1:])
    last_BHKV = state_BHKV.new_empty(state_BHKV.shape, dtype=torch.float32)
    return v_BTHV.new_empty(v_BTHV.shape), last_BHKV, last_BHKV.new_empty(kept)


@_forward.register_fake
def _(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_LHVV: Tensor,
    state_BHKV: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    return _empty(v_BTHV, state_BHKV)


@torch.library.custom_op("statelab::m2rnn_backward", mutates_args=())
def _backward(
    dy_BTHV: Tensor,
    dlast_BHKV: Tensor,
    kept_BCHKV: Tensor,
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_LHVV: Tensor,
    bound: float,
    clip: str,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, f (empty if there is none), W and the state."""
    B, T, H, V = v_BTHV.shape
    G, K = q_BTGK.shape[2:]
    lanes, has_f = weight_LHVV.shape[0], forget_BTH is not None
    block_k, block_v, warps = tiles_of(K, V)
    tiles = triton.cdiv(K, block_k)

    def shares(shape: tuple[int, ...], whole: bool, like: Tensor) -> Tensor:
        """Room for what programs give: the gradient itself where one program gives all of it."""
        return like.new_empty(shape, dtype=like.dtype if whole else torch.float32)

    dq_BTHK, dk_BTHK = (shares((B, T, H, K), G == H, like) for like in (q_BTGK, k_BTGK))
    dv_BTHJV = shares((B, T, H, tiles, V), tiles == 1, v_BTHV)
    df_BTHK = shares((B, T if has_f else 0, H, K), False, v_BTHV)
    dw_BHJVV = shares((B, H, tiles, V, V), False, weight_LHVV)
    dstate_BHKV = torch.empty_like(dlast_BHKV, memory_format=torch.contiguous_format)
    room = v_BTHV.new_empty(
        (B, H, tiles, 2, EVERY, block_k, block_v),
        dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
    )
    # Rows of a product over steps: as many as fit into shared memory several times, and their splits into registers.
    line = block_v * room.element_size()
    rows = min(128 if precision == "bf16" and warps >= 4 else 64, 16384 // line)
    inputs, strides = _strided(q_BTGK, k_BTGK, v_BTHV, forget_BTH)
    dy_BTHV = rows_last_contiguous(dy_BTHV)
    backward_kernel[B, H, tiles](
        dy_BTHV, dlast_BHKV.contiguous(), kept_BCHKV.contiguous(), room, *inputs, weight_LHVV.contiguous(),
        dq_BTHK, dk_BTHK, dv_BTHJV, df_BTHK, dw_BHJVV, dstate_BHKV,
        T, H, B // lanes, H // G, kept_BCHKV.shape[1], bound, *dy_BTHV.stride()[:3], *strides,
        K=K, V=V, HAS_F=has_f, EVERY=EVERY, TILES=tiles, BLOCK_K=block_k, BLOCK_V=block_v, ROWS=rows,
        PRECISION=precision, CLIP=clip, STAGES=3 if line <= 256 else 2, num_warps=warps,
    )  # fmt: skip
    dq_BTGK, dk_BTGK = (
        whole if G == H else whole.unflatten(2, (G, -1)).sum(3).to(like.dtype)
        for whole, like in ((dq_BTHK, q_BTGK), (dk_BTHK, k_BTGK))
    )
    dv_BTHV = dv_BTHJV.squeeze(3) if tiles == 1 else dv_BTHJV.sum(3).to(v_BTHV.dtype)
    df_BTH = df_BTHK.sum(3).to(v_BTHV.dtype if forget_BTH is None else forget_BTH.dtype)
    dw_LHVV = dw_BHJVV.unflatten(0, (lanes, -1)).sum((1, 3)).to(weight_LHVV.dtype)
    return dq_BTGK, dk_BTGK, dv_BTHV, df_BTH, dw_LHVV, dstate_BHKV


@_backward.register_fake
def _(
    dy_BTHV: Tensor,
    dlast_BHKV: Tensor,
    kept_BCHKV: Tensor,
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_LHVV: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    f = v_BTHV.new_empty((v_BTHV.shape[0], 0, v_BTHV.shape[2])) if forget_BTH is None else forget_BTH
    return tuple(t.new_empty(t.shape) for t in (q_BTGK, k_BTGK, v_BTHV, f, weight_LHVV, dlast_BHKV))  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *given, _, bound, clip, precision = inputs
    ctx.save_for_backward(output[2], *given)
    ctx.settings = (bound, clip, precision)


def _gradients(ctx: Any, dy_BTHV: Tensor, dlast_BHKV: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    dq, dk, dv, df, dw, dstate = _backward(dy_BTHV, dlast_BHKV, *ctx.saved_tensors, *ctx.settings)
    return dq, dk, dv, df if ctx.saved_tensors[4] is not None else None, dw, dstate, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
