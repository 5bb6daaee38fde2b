"""The mLSTM with orthogonalised reads by Triton kernels: the read's, and the plain mLSTM's for its denominator.

Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from statelab.kernels.mlstm.options import Options
from statelab.kernels.mlstm.tiles import tiles
from statelab.kernels.orthogonal_read import COEFFICIENTS
from statelab.kernels.orthogonal_read.scan import orthogonal_scan

State = tuple[Tensor, Tensor, Tensor]


def orthogonal(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    forget_gate_BTH: Tensor,
    state: State | None,
    blend: Tensor | None,
    options: Options,
    *,
    precision: str,
    read_precision: str,
) -> tuple[Tensor, State]:
    """See `mlstm`; keys are as given, unscaled, gates before their functions."""
    rows, _, heads, key_width = k_BTHK.shape
    inputs = (q_BTHK, k_BTHK, input_gate_BTH, forget_gate_BTH)
    gate_BTH, log_forget_BTH = input_gate_BTH.float(), torch.nn.functional.logsigmoid(forget_gate_BTH.float())
    if state is None:
        C_BHKV = log_forget_BTH.new_zeros(rows, heads, key_width, v_BTHV.shape[-1])
        n_BHK, m_BH = C_BHKV[..., 0], C_BHKV[..., 0, 0]
    else:
        C_BHKV, n_BHK, m_BH = (part.float() for part in state)
    m_BTH = _running_maximum(gate_BTH, log_forget_BTH, m_BH)
    before_BTH = torch.cat((m_BH.unsqueeze(1), m_BTH[:, :-1]), dim=1)
    y_BTHV, after_BHKV, _ = orthogonal_scan(
        q_BTHK,
        k_BTHK,
        v_BTHV,
        log_forget_BTH + before_BTH - m_BTH,
        gate_BTH - m_BTH - 0.5 * math.log(key_width),
        C_BHKV,
        list(COEFFICIENTS[options.factor]),
        options.iterations,
        options.straight_through,
        read_precision,
    )
    if blend is not None:
        plain_BTHV, _ = _plain(inputs, v_BTHV, (C_BHKV, n_BHK, m_BH), precision)
        y_BTHV = blend * y_BTHV + (1 - blend) * plain_BTHV.float()
    # n is the memory of values that are all 1, and n·q what is read of it.
    ones_BTH1 = torch.ones_like(v_BTHV[..., :1])
    nq_BTH1, (_, n_BHK, _) = _plain(inputs, ones_BTH1, (n_BHK.unsqueeze(-1), n_BHK, m_BH), precision)
    if options.normaliser:
        floor_BTH1 = torch.exp(-m_BTH).unsqueeze(-1)
        y_BTHV = y_BTHV / (torch.maximum(nq_BTH1.float().abs(), floor_BTH1) + 1e-6)
    return y_BTHV.to(v_BTHV.dtype), (after_BHKV, n_BHK, m_BTH[:, -1])


def _plain(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor], v_BTHV: Tensor, state: State, precision: str
) -> tuple[Tensor, State]:
    q_BTHK, k_BTHK, input_gate_BTH, forget_gate_BTH = inputs
    return tiles(
        q_BTHK,
        k_BTHK,
        v_BTHV,
        input_gate_BTH,
        forget_gate_BTH,
        state,
        normaliser=False,
        precision=precision,
    )


def _running_maximum(gate_BTH: Tensor, log_forget_BTH: Tensor, m_BH: Tensor) -> Tensor:
    """m `[B, T, H]`: m_t = max(log f_t + m_{t−1}, ĩ_t), as sums of log f and a running maximum of what they leave."""
    sums_BTH = log_forget_BTH.cumsum(dim=1)
    highest_BTH: Tensor = _CumulativeMaximum.apply(gate_BTH - sums_BTH)[0]
    return sums_BTH + torch.maximum(m_BH.unsqueeze(1), highest_BTH)


class _CumulativeMaximum(torch.autograd.Function):
    """torch.cummax along the second axis, with a gradient that is a difference of sums: torch's own adds up by
    atomics, in any order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x_BTH: Tensor) -> tuple[Tensor, Tensor]:
        values_BTH, where_BTH = torch.cummax(x_BTH, dim=1)
        return values_BTH, where_BTH

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient_BTH: Tensor, _: Tensor) -> Tensor:
        (where_BTH,) = ctx.saved_tensors
        time = where_BTH.shape[1]
        steps_T1 = torch.arange(time, device=where_BTH.device).unsqueeze(-1)
        sets_BTH = where_BTH == steps_T1
        # A step that set the maximum gets the sum up to the next that did.
        later_BTH = torch.where(sets_BTH, steps_T1, time).flip(1).cummin(dim=1).values.flip(1)
        next_BTH = torch.cat((later_BTH[:, 1:], torch.full_like(later_BTH[:, :1], time)), dim=1)
        sums_BTH = gradient_BTH.flip(1).cumsum(dim=1).flip(1)
        beyond_BTH = torch.cat((sums_BTH, torch.zeros_like(sums_BTH[:, :1])), dim=1).gather(1, next_BTH)
        return torch.where(sets_BTH, sums_BTH - beyond_BTH, 0)
