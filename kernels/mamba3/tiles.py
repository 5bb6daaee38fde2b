"""Mamba-3's recurrence by chunks on matrix units, with rotation and trapezoid inside the kernels.

As `kernels.ssd.tiles`: a program is one row, head and block of head width, and walks over time with the state on
chip. Before it, one kernel sums phases and turns writes and reads, which are kept, turned, for the backward pass. The
ranks of a step are rows of one chunk. The weight of row j in row i's output is its decay times λ_j Δ_j
where both are ranks of one step, and times λ_j Δ_j + (1 − λ_{j+1}) Δ_{j+1} where i is later.

Legend: B rows, T time, R ranks, H heads, P head width, N state width, A rotated pairs, C chunks, X parts of a sum.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.mamba3.chunk import with_input_before
from statelab.kernels.mamba3.gradients import backward
from statelab.kernels.mamba3.options import launch_options, parts_itself, split_time
from statelab.kernels.mamba3.phases import turn_kernel
from statelab.kernels.mamba3.reference import State
from statelab.kernels.mamba3.tiles_forward import forward_kernel
from statelab.kernels.ssd.options import plan


def tiles(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    state: State | None,
    precision: str,
) -> tuple[Tensor, State]:
    """See `mamba3`; inputs of any float dtype up to float32, the state in float32. `state` None is zeros."""
    phase_BHA = h_BHPN = None
    if state is not None:
        phase, before, x_before, h_BHPN = state
        phase_BHA = phase if isinstance(phase, Tensor) else None
        if weight_BTH is not None:
            later_BH = (1 - weight_BTH[:, 0].float()) * step_BTH[:, 0].float()
            h_BHPN = with_input_before(h_BHPN, later_BH, x_before, before)
    y_BTRHP, phase_BHA, before_BRHN, x_before_BRHP, h_BHPN, *_ = forward(
        x_BTRHP, log_decay_BTH, step_BTH, weight_BTH, angle_BTHA, write_BTRHN, read_BTRHN, phase_BHA, h_BHPN,
        precision, torch.is_grad_enabled(),
    )  # fmt: skip
    after: State = (
        () if angle_BTHA is None else phase_BHA,
        () if weight_BTH is None else before_BRHN,
        () if weight_BTH is None else x_before_BRHP,
        h_BHPN,
    )
    return y_BTRHP, after


@torch.library.custom_op(
    "statelab::mamba3_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor log_decay, Tensor step, Tensor? weight, Tensor? angle, Tensor write, Tensor read,"
    " Tensor? phase, Tensor? h, str precision, bool keep)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def forward(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    phase_BHA: Tensor | None,
    h_BHPN: Tensor | None,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    """Outputs, the last state's parts, phases in turns `[B, T, H, A]`, writes and reads turned by them (all empty
    where nothing needs them) and, if `keep`, the states at the starts of chunks, `[B, H, C, N, P]`."""
    outputs = _empty(x_BTRHP, weight_BTH, angle_BTHA, write_BTRHN, precision, keep)
    y_BTRHP, last_BHA, before_BRHN, x_before_BRHP, h_last_BHPN, turns_BTHA, *turned, starts_BHCNP = outputs
    x_BTRHP, write_BTRHN, read_BTRHN = map(rows_last_contiguous, (x_BTRHP, write_BTRHN, read_BTRHN))
    rows, time, ranks, heads, width = x_BTRHP.shape
    states, pairs, has_weight = write_BTRHN.shape[-1], turns_BTHA.shape[-1], weight_BTH is not None
    sizes = plan(time * ranks, width, states, precision)
    dims = {"RANKS": ranks, "STATES": states, "PRECISION": precision}
    with torch.cuda.device_of(x_BTRHP):
        if angle_BTHA is not None and pairs:
            angle_BTHA = rows_last_contiguous(angle_BTHA)
            blocks, parts = split_time(rows * heads, triton.cdiv(time, sizes["L"] // ranks))
            turn_kernel[(rows * heads, parts)](
                angle_BTHA, None if phase_BHA is None else phase_BHA.contiguous(), write_BTRHN, read_BTRHN,
                turns_BTHA, last_BHA, *turned, before_BRHN,
                time, heads, blocks, *angle_BTHA.stride()[:3], *write_BTRHN.stride()[:4], *read_BTRHN.stride()[:4],
                PAIRS=pairs, HAS_STATE=phase_BHA is not None, KEEP_LAST=has_weight, **dims,
                L=sizes["L"], N=sizes["N"], num_warps=4,
            )  # fmt: skip
            write_BTRHN, read_BTRHN = turned
        elif has_weight:
            before_BRHN.copy_(write_BTRHN[:, -1])
        forward_kernel[(rows * heads, triton.cdiv(width, sizes["W"]))](
            x_BTRHP, log_decay_BTH.contiguous(), step_BTH.contiguous(),
            None if weight_BTH is None else weight_BTH.contiguous(), write_BTRHN, read_BTRHN,
            None if h_BHPN is None else h_BHPN.contiguous(),
            y_BTRHP, x_before_BRHP, h_last_BHPN, starts_BHCNP,
            time, heads, triton.cdiv(time, sizes["L"] // ranks),
            *x_BTRHP.stride()[:4], *write_BTRHN.stride()[:4], *read_BTRHN.stride()[:4],
            WIDTH=width, HAS_WEIGHT=has_weight, HAS_STATE=h_BHPN is not None, KEEP=keep,
            R=triton.next_power_of_2(ranks), APART=parts_itself(sizes, ranks), **dims, **sizes,
            **launch_options(sizes, precision),
        )  # fmt: skip
    return outputs


@forward.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    x, _, _, weight, angle, write, _, _, _, precision, keep = given
    return _empty(x, weight, angle, write, precision, keep)


def _empty(
    x_BTRHP: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    rows, time, ranks, heads, width = x_BTRHP.shape
    states, pairs = write_BTRHN.shape[-1], 0 if angle_BTHA is None else angle_BTHA.shape[-1]
    sizes = plan(time * ranks, width, states, precision)
    chunks = triton.cdiv(time, sizes["L"] // ranks) if keep else 0
    before = 0 if weight_BTH is None else ranks
    # Products with what is kept round it to 16 bits anyway, where they are made in bf16.
    kept = torch.bfloat16 if precision == "bf16" else torch.float32

    def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return x_BTRHP.new_empty(shape, dtype=dtype)

    return (
        room(rows, time, ranks, heads, width, dtype=x_BTRHP.dtype),
        room(rows, heads, pairs),
        room(rows, before, heads, states),
        room(rows, before, heads, width),
        room(rows, heads, width, states),
        room(rows, time, heads, pairs),
        *(room(rows, time if pairs else 0, ranks, heads, states, dtype=kept) for _ in range(2)),
        room(rows, heads, chunks, states, width, dtype=kept),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, log_decay, step, weight, angle, write, read, phase, h, ctx.precision, _ = inputs
    _, _, before, _, last, turns, *turned, starts = output
    written, seen = turned if turns.shape[-1] else (write, read)
    ctx.save_for_backward(x, log_decay, step, weight, written, seen, before, last, turns, starts)
    ctx.dtypes = write.dtype, read.dtype
    ctx.angle_dtype = None if angle is None else angle.dtype
    ctx.has_weight, ctx.has_phase, ctx.has_state = weight is not None, phase is not None, h is not None
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, *dafter: Tensor | None) -> tuple[Tensor | None, ...]:
    """`dafter`: of the last state's four parts, then None of what is kept."""
    x_BTRHP, *others = ctx.saved_tensors
    dy = torch.zeros_like(x_BTRHP) if dy is None else dy
    dx, ddecay, dstep, dweight, dangle, dwrite, dread, dh = backward(
        dy, *dafter[:4], x_BTRHP, *others, *ctx.dtypes, ctx.has_state, ctx.precision
    )
    has_angle = ctx.angle_dtype is not None
    gates = (
        ddecay,
        dstep,
        dweight if ctx.has_weight else None,
        dangle.to(ctx.angle_dtype) if has_angle else None,
    )
    dphase = dangle[:, 0] if ctx.has_phase and has_angle else None
    return dx, *gates, dwrite, dread, dphase, dh if ctx.has_state else None, None, None


forward.register_autograd(_gradients, setup_context=_setup)
lift(forward)
