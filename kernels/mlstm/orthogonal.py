"""The mLSTM with orthogonalised reads by Triton kernels: the read's, and the plain mLSTM's for its denominator.

Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

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
        plain_BTHV, _ = _plain(inputs, v_BTHV, (C_BHKV, n_BHK, m_BH), precision, options.programs)
        y_BTHV = blend * y_BTHV + (1 - blend) * plain_BTHV.float()
    # n is the memory of values that are all 1, and n·q what is read of it.
    ones_BTH1 = torch.ones_like(v_BTHV[..., :1])
    nq_BTH1, (_, n_BHK, _) = _plain(
        inputs, ones_BTH1, (n_BHK.unsqueeze(-1), n_BHK, m_BH), precision, options.programs
    )
    if options.normaliser:
        floor_BTH1 = torch.exp(-m_BTH).unsqueeze(-1)
        y_BTHV = y_BTHV / (torch.maximum(nq_BTH1.float().abs(), floor_BTH1) + 1e-6)
    return y_BTHV.to(v_BTHV.dtype), (after_BHKV, n_BHK, m_BTH[:, -1])


def _plain(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    v_BTHV: Tensor,
    state: State,
    precision: str,
    programs: Programs,
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
        programs=programs,
    )
