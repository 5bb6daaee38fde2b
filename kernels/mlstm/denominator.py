"""n·q of an mLSTM alone, in float32, as an op of its own: Triton kernels, their gradient and vmap rule.

    n_t = f_t n_{t−1} + i_t k_t,    s_t = n_t·q_t,    f_t = exp(log f_t),    i_t = exp(log i_t)

Unlike the numerator's, this memory is a vector: one warp walks along a sequence with elementwise arithmetic.
Legend: B rows, T time, H heads, K key width, N blocks of time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.mlstm.denominator_kernels import backward_kernel, forward_kernel

AHEAD = 32
"""How many steps before its own a row is fetched into the second-level cache."""

ONE_WARP = {"num_warps": 1, "num_stages": 1}


def denominator(
    q_BTHK: Tensor, k_BTHK: Tensor, log_f_BTH: Tensor, log_i_BTH: Tensor, start_BHK: Tensor | None
) -> tuple[Tensor, Tensor]:
    """s `[B, T, H]` and the last n `[B, H, K]`, in float32, as are the gates and `start`; None starts from zeros.

    q and k are of any float dtype up to float32, K up to 128.
    """
    s_BTH, last_BHK, _ = _forward(q_BTHK, k_BTHK, log_f_BTH, log_i_BTH, start_BHK)
    return s_BTH, last_BHK


def _block(width: int) -> int:
    """Steps of a block: a warp's registers hold the rows of two. n is kept between blocks."""
    return 8 if width <= 64 else 4


def _tile(q_BTHK: Tensor) -> dict[str, int]:
    width = max(triton.next_power_of_2(q_BTHK.shape[-1]), 32)
    # The cache is filled by 32 bytes.
    parts = max(width * q_BTHK.element_size() // 32, 1)
    return {"U": _block(q_BTHK.shape[-1]), "W": width, "PARTS": parts, "AHEAD": AHEAD, **ONE_WARP}


@torch.library.custom_op("statelab::mlstm_denominator", mutates_args=())
def _forward(
    q_BTHK: Tensor, k_BTHK: Tensor, log_f_BTH: Tensor, log_i_BTH: Tensor, start_BHK: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """s, the last n, and n before each block of time."""
    _, T, H, K = q_BTHK.shape
    s_BTH, last_BHK, kept_BHNK = _outputs(q_BTHK)
    q_BTHK, k_BTHK = rows_last_contiguous(q_BTHK), rows_last_contiguous(k_BTHK)
    log_f_BTH, log_i_BTH = log_f_BTH.contiguous(), log_i_BTH.contiguous()
    with torch.cuda.device_of(q_BTHK):
        forward_kernel[(last_BHK.shape[0] * H,)](
            q_BTHK, k_BTHK, log_f_BTH, log_i_BTH, last_BHK if start_BHK is None else start_BHK.contiguous(),
            s_BTH, last_BHK, kept_BHNK,
            T, *q_BTHK.stride()[:3:2], *k_BTHK.stride()[:3:2], H, K, q_BTHK.stride(1), k_BTHK.stride(1),
            HAS_START=start_BHK is not None, **_tile(q_BTHK),
        )  # fmt: skip
    return s_BTH, last_BHK, kept_BHNK


def _outputs(q_BTHK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    B, T, H, K = q_BTHK.shape
    blocks = -(-T // _block(K))
    shapes = ((B, T, H), (B, H, K), (B, H, blocks, K))
    s_BTH, last_BHK, kept_BHNK = (q_BTHK.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return s_BTH, last_BHK, kept_BHNK


@_forward.register_fake
def _(q_BTHK: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(q_BTHK)


@torch.library.custom_op("statelab::mlstm_denominator_backward", mutates_args=())
def _backward(
    ds_BTH: Tensor,
    dlast_BHK: Tensor | None,
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    log_f_BTH: Tensor,
    log_i_BTH: Tensor,
    kept_BHNK: Tensor,
    has_start: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, both gates and the start, in their dtypes; the last one empty where there is none."""
    _, T, H, K = q_BTHK.shape
    gradients = _gradients_of(q_BTHK, k_BTHK, log_f_BTH, has_start)
    q_BTHK, k_BTHK = rows_last_contiguous(q_BTHK), rows_last_contiguous(k_BTHK)
    log_f_BTH, log_i_BTH, ds_BTH = log_f_BTH.contiguous(), log_i_BTH.contiguous(), ds_BTH.contiguous()
    with torch.cuda.device_of(q_BTHK):
        backward_kernel[(len(q_BTHK) * H,)](
            q_BTHK, k_BTHK, log_f_BTH, log_i_BTH, kept_BHNK.contiguous(),
            ds_BTH, ds_BTH if dlast_BHK is None else dlast_BHK.contiguous(), *gradients,
            T, *q_BTHK.stride()[:3:2], *k_BTHK.stride()[:3:2], H, K, q_BTHK.stride(1), k_BTHK.stride(1),
            HAS_DLAST=dlast_BHK is not None, HAS_START=has_start, **_tile(q_BTHK),
        )  # fmt: skip
    return gradients


def _gradients_of(
    q_BTHK: Tensor, k_BTHK: Tensor, log_f_BTH: Tensor, has_start: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, _, H, K = q_BTHK.shape
    dq_BTHK, dk_BTHK, df_BTH, di_BTH = (
        tensor.new_empty(tensor.shape) for tensor in (q_BTHK, k_BTHK, log_f_BTH, log_f_BTH)
    )
    return dq_BTHK, dk_BTHK, df_BTH, di_BTH, log_f_BTH.new_empty((B, H if has_start else 0, K))


@_backward.register_fake
def _(
    ds_BTH: Tensor,
    dlast_BHK: Tensor | None,
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    log_f_BTH: Tensor,
    log_i_BTH: Tensor,
    kept_BHNK: Tensor,
    has_start: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _gradients_of(q_BTHK, k_BTHK, log_f_BTH, has_start)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    # The start is the first block's.
    ctx.save_for_backward(*inputs[:4], output[2])
    ctx.has_start = inputs[4] is not None


def _gradients(
    ctx: Any, ds_BTH: Tensor | None, dlast_BHK: Tensor | None, _: None
) -> tuple[Tensor | None, ...]:
    ds_BTH = torch.zeros_like(ctx.saved_tensors[2]) if ds_BTH is None else ds_BTH
    *gradients, dstart_BHK = _backward(ds_BTH, dlast_BHK, *ctx.saved_tensors, ctx.has_start)
    return *gradients, dstart_BHK if ctx.has_start else None


_forward.register_autograd(_gradients, setup_context=_setup)
lift(_forward)
lift(_backward)
