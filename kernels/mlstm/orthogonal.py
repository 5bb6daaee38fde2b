"""The mLSTM with orthogonalised reads by Triton kernels: the read's, its denominator's, the plain mLSTM's for a blend.

Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from statelab.kernels.mlstm.denominator import denominator
from statelab.kernels.mlstm.maximum import running_maximum
from statelab.kernels.mlstm.options import Options, Programs
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
    m_BTH = running_maximum(gate_BTH, log_forget_BTH, m_BH)
    before_BTH = torch.cat((m_BH.unsqueeze(1), m_BTH[:, :-1]), dim=1)
    log_f_BTH = log_forget_BTH + before_BTH - m_BTH
    log_i_BTH = gate_BTH - m_BTH - 0.5 * math.log(key_width)
    y_BTHV, after_BHKV, _ = orthogonal_scan(
        q_BTHK,
        k_BTHK,
        v_BTHV,
        log_f_BTH,
        log_i_BTH,
        C_BHKV,
        list(COEFFICIENTS[options.factor]),
        options.iterations,
        options.straight_through,
        read_precision,
    )
    if blend is not None:
        plain_BTHV = _plain(inputs, v_BTHV, (C_BHKV, n_BHK, m_BH), precision, options.programs)
        y_BTHV = blend * y_BTHV + (1 - blend) * plain_BTHV.float()
    nq_BTH, n_BHK = denominator(q_BTHK, k_BTHK, log_f_BTH, log_i_BTH, n_BHK)
    if options.normaliser:
        # Multiplied, for the gradient's sake: that of a quotient passes over y two times more.
        y_BTHV = y_BTHV * (torch.maximum(nq_BTH.abs(), torch.exp(-m_BTH)) + 1e-6).reciprocal().unsqueeze(-1)
    return y_BTHV.to(v_BTHV.dtype), (after_BHKV, n_BHK, m_BTH[:, -1])


def _plain(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    v_BTHV: Tensor,
    state: State,
    precision: str,
    programs: Programs,
) -> Tensor:
    """The read Cᵀ q alone."""
    q_BTHK, k_BTHK, input_gate_BTH, forget_gate_BTH = inputs
    read_BTHV, _ = tiles(
        q_BTHK,
        k_BTHK,
        v_BTHV,
        input_gate_BTH,
        forget_gate_BTH,
        state,
        normaliser=False,
        precision=precision,
        programs=programs,
    )
    return read_BTHV
