"""The backward op of `kernels.mamba3.tiles`.

Legend: B rows, T time, R ranks, H heads, P head width, N state width, A rotated pairs, C chunks, X parts of a sum.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.mamba3.options import launch_options, parts_itself
from statelab.kernels.mamba3.reference import rotate
from statelab.kernels.mamba3.tiles_backward import ends_kernel, gradients_kernel
from statelab.kernels.ssd.options import plan


@torch.library.custom_op(
    "statelab::mamba3_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor? dphase, Tensor? dbefore, Tensor? dx_before, Tensor? dlast, Tensor x,"
    " Tensor log_decay, Tensor step, Tensor? weight, Tensor write, Tensor read, Tensor before, Tensor last,"
    " Tensor turns, Tensor starts, ScalarType write_dtype, ScalarType read_dtype, bool has_state, str precision)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def backward(
    dy_BTRHP: Tensor,
    dphase_BHA: Tensor | None,
    dbefore_BRHN: Tensor | None,
    dx_before_BRHP: Tensor | None,
    dlast_BHPN: Tensor | None,
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    before_BRHN: Tensor,
    last_BHPN: Tensor,
    turns_BTHA: Tensor,
    starts_BHCNP: Tensor,
    write_dtype: torch.dtype,
    read_dtype: torch.dtype,
    has_state: bool,
    precision: str,
) -> tuple[Tensor, ...]:
    """Gradients of x, log decay, Δ, λ, θ (in float32), write, read and h; empty of what there is not.

    `write` and `read` are turned already, the dtypes those of what was given.
    """
    dense = map(rows_last_contiguous, (dy_BTRHP, x_BTRHP, write_BTRHN, read_BTRHN))
    dy_BTRHP, x_BTRHP, write_BTRHN, read_BTRHN = dense
    rows, time, ranks, heads, width = x_BTRHP.shape
    states, pairs, chunks = write_BTRHN.shape[-1], turns_BTHA.shape[-1], starts_BHCNP.shape[2]
    sizes = plan(time * ranks, width, states, precision)
    blocks = triton.cdiv(width, sizes["W"])
    gradients = _empty(
        x_BTRHP,
        log_decay_BTH,
        step_BTH,
        weight_BTH,
        turns_BTHA,
        write_BTRHN,
        write_dtype,
        read_dtype,
        has_state,
    )
    dx_BTRHP, ddecay_BTH, dstep_BTH, dweight_BTH, dangle_BTHA, dwrite_BTRHN, dread_BTRHN, dstate_BHPN = (
        gradients
    )
    gates = ((ddecay_BTH, 3), (dstep_BTH, 3), (dweight_BTH, 3), (dangle_BTHA, 3))
    shared = (*gates, (dwrite_BTRHN, 4), (dread_BTRHN, 4))
    shares = [_room(gradient, axis, blocks) for gradient, axis in shared]
    ends_BHCNP = torch.empty_like(starts_BHCNP)
    decay_BTH, gate_BTH = log_decay_BTH.contiguous(), step_BTH.contiguous()
    lambda_BTH = None if weight_BTH is None else weight_BTH.contiguous()
    dims = {
        "RANKS": ranks, "WIDTH": width, "STATES": states, "PRECISION": precision, **sizes,
    }  # fmt: skip
    with torch.cuda.device_of(x_BTRHP):
        ends_kernel[(rows * heads, blocks)](
            dy_BTRHP, None if dlast_BHPN is None else dlast_BHPN.contiguous(), decay_BTH, read_BTRHN,
            ends_BHCNP, dstate_BHPN, time, heads, chunks,
            *dy_BTRHP.stride()[:4], *read_BTRHN.stride()[:4],
            HAS_DLAST=dlast_BHPN is not None, HAS_STATE=has_state, **dims, **launch_options(sizes, precision),
        )  # fmt: skip
        gradients_kernel[(rows * heads * chunks, blocks)](
            dy_BTRHP, x_BTRHP, decay_BTH, gate_BTH, lambda_BTH, turns_BTHA, write_BTRHN, read_BTRHN,
            starts_BHCNP, ends_BHCNP, dx_BTRHP, *shares,
            time, heads, chunks, blocks, *dy_BTRHP.stride()[:4], *x_BTRHP.stride()[:4],
            *write_BTRHN.stride()[:4], *read_BTRHN.stride()[:4],
            PAIRS=pairs, HAS_WEIGHT=weight_BTH is not None, APART=parts_itself(sizes, ranks), **dims,
            **launch_options(sizes, precision, walks=False),
        )  # fmt: skip
    if blocks > 1:
        for (gradient, axis), share in zip(shared, shares, strict=True):
            gradient.copy_(share.sum(dim=axis))
    if dx_before_BRHP is not None:
        dx_BTRHP[:, -1] += dx_before_BRHP
    if dbefore_BRHN is not None:
        dwrite_BTRHN[:, -1] += rotate(dbefore_BRHN, turns_BTHA[:, -1] * (-2 * math.pi))
    for dpart, part, axis in ((dbefore_BRHN, before_BRHN, 1), (dlast_BHPN, last_BHPN, 2)):
        if dpart is not None and pairs:
            dangle_BTHA += _turning(dpart, part, pairs).sum(dim=axis).unsqueeze(1)
    if dphase_BHA is not None:
        dangle_BTHA += dphase_BHA.unsqueeze(1)
    return gradients


def _room(gradient: Tensor, axis: int, blocks: int) -> Tensor:
    """Room for what each block of head width adds to a gradient; a lone block writes the gradient itself."""
    if blocks == 1:
        return gradient.unsqueeze(axis)
    shape = (*gradient.shape[:axis], blocks, *gradient.shape[axis:])
    return gradient.new_empty(shape, dtype=torch.float32)


def _turning(dpart_N: Tensor, part_N: Tensor, pairs: int) -> Tensor:
    """What turning the pairs of `part [..., N]` further adds to the loss, `[..., A]`: nothing within takes it back."""
    deven_A, dodd_A = dpart_N[..., : 2 * pairs].unflatten(-1, (pairs, 2)).unbind(-1)
    even_A, odd_A = part_N[..., : 2 * pairs].unflatten(-1, (pairs, 2)).unbind(-1)
    turning_A: Tensor = dodd_A * even_A - deven_A * odd_A
    return turning_A


@backward.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    x, log_decay, step, weight, write, _, _, _, turns, _, *others, _ = given[5:]
    return _empty(x, log_decay, step, weight, turns, write, *others)


def _empty(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    turns_BTHA: Tensor,
    write_BTRHN: Tensor,
    write_dtype: torch.dtype,
    read_dtype: torch.dtype,
    has_state: bool,
) -> tuple[Tensor, ...]:
    rows, _, _, heads, width = x_BTRHP.shape
    shape = (rows, heads, width, write_BTRHN.shape[-1]) if has_state else (rows, 0)
    weight_BTH = step_BTH[:, :0] if weight_BTH is None else weight_BTH
    like = (tensor.new_empty(tensor.shape) for tensor in (x_BTRHP, log_decay_BTH, step_BTH, weight_BTH))
    pairs = (write_BTRHN.new_empty(write_BTRHN.shape, dtype=dtype) for dtype in (write_dtype, read_dtype))
    return *like, torch.empty_like(turns_BTHA), *pairs, x_BTRHP.new_empty(shape, dtype=torch.float32)


lift(backward)
