"""Mamba-2's recurrence by chunks on matrix units: each program walks over one sequence with the state on chip.

A program is one row, head and block of head width, so that rows · heads (lanes included) fill the chip; the states
at the starts of chunks are kept for the backward pass, which recomputes everything else.

Legend: B rows, T time, H heads, P head width, G groups, N state width, C chunks, X parts of a sum.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.partial import parts, summed
from statelab.kernels.ssd.options import launch_options, plan
from statelab.kernels.ssd.tiles_backward import ends_kernel, gradients_kernel
from statelab.kernels.ssd.tiles_forward import forward_kernel


def tiles(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor | None,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """See `ssd`; inputs of any float dtype up to float32, the state in float32."""
    y_BTHP, last_BHPN, _ = forward(
        x_BTHP, log_decay_BTH, write_BTGN, read_BTGN, state_BHPN, precision, torch.is_grad_enabled()
    )
    return y_BTHP, last_BHPN


@torch.library.custom_op(
    "statelab::ssd_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor log_decay, Tensor write, Tensor read, Tensor? state, str precision, bool keep)"
    " -> (Tensor, Tensor, Tensor)",
)
def forward(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor | None,
    precision: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the last state and, if `keep`, the states at the starts of chunks, `[B, H, C, N, P]`."""
    x_BTHP, write_BTGN, read_BTGN = map(rows_last_contiguous, (x_BTHP, write_BTGN, read_BTGN))
    outputs = _empty(x_BTHP, write_BTGN, precision, keep)
    rows, time, heads, width = x_BTHP.shape
    groups, states = write_BTGN.shape[2:]
    sizes = plan(time, width, states, precision)
    grid = (rows * heads, triton.cdiv(width, sizes["W"]))
    with torch.cuda.device_of(x_BTHP):
        forward_kernel[grid](
            x_BTHP, log_decay_BTH, write_BTGN, read_BTGN,
            None if state_BHPN is None else state_BHPN.contiguous(), *outputs,
            time, heads, heads // groups, triton.cdiv(time, sizes["L"]),
            *x_BTHP.stride()[:3], *log_decay_BTH.stride(), *write_BTGN.stride()[:3], *read_BTGN.stride()[:3],
            WIDTH=width, STATES=states, HAS_STATE=state_BHPN is not None, KEEP=keep, PRECISION=precision,
            **sizes, **launch_options(sizes, precision),
        )  # fmt: skip
    return outputs


@forward.register_fake
def _(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor | None,
    precision: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _empty(x_BTHP, write_BTGN, precision, keep)


def _empty(x_BTHP: Tensor, write_BTGN: Tensor, precision: str, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    rows, time, heads, width = x_BTHP.shape
    states = write_BTGN.shape[3]
    chunks = triton.cdiv(time, plan(time, width, states, precision)["L"]) if keep else 0
    # Products with a state that was kept round it to 16 bits anyway, where they are made in bf16.
    kept = torch.bfloat16 if precision == "bf16" else torch.float32
    return (
        x_BTHP.new_empty(rows, time, heads, width),
        x_BTHP.new_empty(rows, heads, width, states, dtype=torch.float32),
        x_BTHP.new_empty(rows, heads, chunks, states, width, dtype=kept),
    )


@torch.library.custom_op(
    "statelab::ssd_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor? dlast, Tensor x, Tensor log_decay, Tensor write, Tensor read, Tensor starts,"
    " bool has_state, str precision) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def backward(
    dy_BTHP: Tensor,
    dlast_BHPN: Tensor | None,
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    starts_BHCNP: Tensor,
    has_state: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, log decay, write, read (in their dtypes) and the state, which is empty if there was none."""
    dense = map(rows_last_contiguous, (dy_BTHP, x_BTHP, write_BTGN, read_BTGN))
    dy_BTHP, x_BTHP, write_BTGN, read_BTGN = dense
    rows, time, heads, width = x_BTHP.shape
    groups, states = write_BTGN.shape[2:]
    sizes = plan(time, width, states, precision)
    blocks = triton.cdiv(width, sizes["W"])
    shared = heads // groups * blocks
    dx_BTHP = x_BTHP.new_empty(x_BTHP.shape)
    ddecay_BTHX = parts(log_decay_BTH, (rows, time, heads, blocks), blocks)
    dwrite_BTGXN = parts(write_BTGN, (rows, time, groups, shared, states), shared)
    dread_BTGXN = parts(read_BTGN, (rows, time, groups, shared, states), shared)
    dstate_BHPN = x_BTHP.new_empty(
        (rows, heads, width, states) if has_state else (rows, 0), dtype=torch.float32
    )
    ends_BHCNP = torch.empty_like(starts_BHCNP)
    chunks = starts_BHCNP.shape[2]
    dims = {
        "WIDTH": width,
        "STATES": states,
        "PRECISION": precision,
        **sizes,
    }
    with torch.cuda.device_of(x_BTHP):
        ends_kernel[(rows * heads, blocks)](
            dy_BTHP, None if dlast_BHPN is None else dlast_BHPN.contiguous(), log_decay_BTH, read_BTGN,
            ends_BHCNP, dstate_BHPN, time, heads, heads // groups, chunks,
            *dy_BTHP.stride()[:3], *log_decay_BTH.stride(), *read_BTGN.stride()[:3],
            HAS_DLAST=dlast_BHPN is not None, HAS_STATE=has_state, **dims, **launch_options(sizes, precision),
        )  # fmt: skip
        gradients_kernel[(rows * heads * chunks, blocks)](
            dy_BTHP, x_BTHP, log_decay_BTH, write_BTGN, read_BTGN, starts_BHCNP, ends_BHCNP,
            dx_BTHP, ddecay_BTHX, dwrite_BTGXN, dread_BTGXN,
            time, heads, heads // groups, chunks, blocks,
            *dy_BTHP.stride()[:3], *x_BTHP.stride()[:3], *log_decay_BTH.stride(),
            *write_BTGN.stride()[:3], *read_BTGN.stride()[:3], **dims,
            **launch_options(sizes, precision, walks=False),
        )  # fmt: skip
    return (
        dx_BTHP,
        summed(ddecay_BTHX, 3, log_decay_BTH),
        summed(dwrite_BTGXN, 3, write_BTGN),
        summed(dread_BTGXN, 3, read_BTGN),
        dstate_BHPN,
    )


@backward.register_fake
def _(
    dy_BTHP: Tensor,
    dlast_BHPN: Tensor | None,
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    starts_BHCNP: Tensor,
    has_state: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, _, heads, width = x_BTHP.shape
    shape = (rows, heads, width, write_BTGN.shape[3]) if has_state else (rows, 0)
    gradients = (tensor.new_empty(tensor.shape) for tensor in (x_BTHP, log_decay_BTH, write_BTGN, read_BTGN))
    return *gradients, x_BTHP.new_empty(shape, dtype=torch.float32)  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, state_BHPN, ctx.precision, _ = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.has_state = state_BHPN is not None
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, dlast: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    x_BTHP, *others = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(x_BTHP)
    *gradients, dstate = backward(dy, dlast, x_BTHP, *others, ctx.has_state, ctx.precision)
    return *gradients, dstate if ctx.has_state else None, None, None


forward.register_autograd(_gradients, setup_context=_setup)
lift(forward)
lift(backward)
