"""The stabiliser of every step, as an op of its own.

Made of torch's scans, which torch.compile (2.11) cannot take apart at every size: it sees one op.
Legend: B rows, T time, H heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from statelab.kernels.lanes import lift
from statelab.kernels.running import sums_to_end, time_last, time_second


def running_maximum(gate_BTH: Tensor, log_forget_BTH: Tensor, m_BH: Tensor) -> Tensor:
    """m `[B, T, H]`: m_t = max(log f_t + m_{t−1}, ĩ_t), from m before the first step (Beck et al. 2024, eq. 15).

    As sums F of log f and a running maximum of what they leave, m_t = F_t + max(m_0, max_{j ≤ t} (ĩ_j − F_j)). Where
    several steps reach the maximum, its gradient goes to the last of them.
    """
    m_BTH: Tensor = stabiliser(gate_BTH, log_forget_BTH, m_BH)[0]
    return m_BTH


@torch.library.custom_op("statelab::mlstm_stabiliser", mutates_args=())
def stabiliser(gate: Tensor, log_forget: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """m, and for each step the one that set its maximum, `[B, H, T]`, −1 for the start."""
    sums = time_last(log_forget).cumsum(dim=-1)
    highest, setter = torch.cummax(time_last(gate) - sums, dim=-1)
    start = start.unsqueeze(-1)
    return time_second(sums + torch.maximum(start, highest)), torch.where(start > highest, -1, setter)


@stabiliser.register_fake
def _(gate: Tensor, log_forget: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    rows, time, heads = gate.shape
    return gate.new_empty(gate.shape), gate.new_empty((rows, heads, time), dtype=torch.long)


@torch.library.custom_op("statelab::mlstm_stabiliser_backward", mutates_args=())
def stabiliser_backward(setter: Tensor, dm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gate, of log f and of the start: differences of sums, where a scatter would add in any order."""
    time = setter.shape[-1]
    steps = torch.arange(time, device=setter.device)
    sets = setter == steps
    # A step that set the maximum has it up to the next that did; the start up to the first.
    nexts = torch.where(sets, steps, time).flip(-1).cummin(dim=-1).values.flip(-1)
    ends = torch.cat((nexts[..., 1:], torch.full_like(nexts[..., :1], time)), dim=-1)
    dm = time_last(dm)
    sums = sums_to_end(dm)
    beyond = torch.cat((sums, torch.zeros_like(sums[..., :1])), dim=-1)
    dgate = torch.where(sets, sums - beyond.gather(-1, ends), 0)
    dstart = sums[..., 0] - beyond.gather(-1, nexts[..., :1])[..., 0]
    return time_second(dgate), time_second(sums_to_end(dm - dgate)), dstart


@stabiliser_backward.register_fake
def _(setter: Tensor, dm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return dm.new_empty(dm.shape), dm.new_empty(dm.shape), dm.new_empty(setter.shape[:2])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, dm: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    (setter,) = ctx.saved_tensors
    gradients: tuple[Tensor, Tensor, Tensor] = stabiliser_backward(setter, dm)
    return gradients


stabiliser.register_autograd(_backward, setup_context=_setup)
lift(stabiliser)
lift(stabiliser_backward)
