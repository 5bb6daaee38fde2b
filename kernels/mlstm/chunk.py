"""The stabilised mLSTM by chunks of time.

Legend: B rows, T time, L steps of a chunk (I where they are read, J where they are written), H heads, K key
width, V value width, W = V + 1: values and a column of ones, which makes C and n one matrix and the
numerator and n·q one product.

With F the log forget gates summed up to a step of a chunk, and 0 its start,
    m_i = F_i + max(m_0, max_{j ≤ i} (ĩ_j − F_j)),    w_i = e^{F_i + m_0 − m_i},
    [C | n]_i = w_i [C | n]_0 + Σ_{j ≤ i} D_ij k_j u_jᵀ.
Adding writes: u_j = [v | 1]_j, D_ij = e^{F_i − F_j + ĩ_j − m_i}. Delta writes, with k̂ for k: D_ij = e^{F_i − m_i −
F_j + m_j}, and u_i = e^{ĩ_i − m_i} ‖k_i‖ [v | 1]_i − [C | n]ᵀ k̂_i of the memory before, decayed by step i: a unit
lower-triangular system over the steps of the chunk.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.chunks import decay_between, join, split
from statelab.kernels.mlstm.options import Options
from statelab.kernels.mlstm.reference import unit
from statelab.kernels.orthogonal_read import orthogonal_read
from statelab.kernels.recompute import recompute

LENGTH = 64
SHORT_LENGTH = 16
"""Steps of a chunk. An orthogonal read holds a chunk's matrices C all at once, several times over; a delta write
solves a system whose cost grows with the square."""


def chunk(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    log_forget_BTH: Tensor,
    state: tuple[Tensor, Tensor, Tensor],
    blend: Tensor | None,
    options: Options,
    length: int | None = None,
    *,
    fresh: bool = False,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """See `mlstm`; keys are scaled, every tensor has the state's dtype.

    `fresh`: C and n are zeros, so that the first chunk need not read them.
    """
    time = q_BTHK.shape[1]
    adds = options.write == "add"
    length = min(length or (LENGTH if adds and options.read == "plain" else SHORT_LENGTH), time)
    q_CBHLK, k_CBHLK = split(q_BTHK, length), split(k_BTHK, length)
    v_CBHLW = split(F.pad(v_BTHV, (0, 1), value=1.0), length)
    # Filled-up steps forget nothing and write nothing, so the last state is that of the last true step.
    cum_CBHL = split(log_forget_BTH, length).cumsum(dim=-1)
    gate_CBHL = split(input_gate_BTH, length, pad=-torch.inf)
    decay_CBHLL = decay_between(cum_CBHL)
    highest_CBHL = (decay_CBHLL + gate_CBHL.unsqueeze(-2)).amax(dim=-1)

    C_BHKV, n_BHK, m_BH = state
    C_BHKW = torch.cat((C_BHKV, n_BHK.unsqueeze(-1)), dim=-1)
    outputs = []
    for c in range(len(q_CBHLK)):
        q_BHLK, k_BHLK, u_BHLW, gate_BHL = q_CBHLK[c], k_CBHLK[c], v_CBHLW[c], gate_CBHL[c]
        before_BHL = cum_CBHL[c] + m_BH.unsqueeze(-1)
        m_BHL = torch.maximum(before_BHL, highest_CBHL[c])
        w_BHL1 = torch.exp(before_BHL - m_BHL).unsqueeze(-1)
        at_i_BHL1 = m_BHL.unsqueeze(-1)
        start_BHKW = None if fresh else C_BHKW
        if adds:
            D_BHLL = torch.exp(decay_CBHLL[c] + gate_BHL.unsqueeze(-2) - at_i_BHL1)
        else:
            D_BHLL = torch.exp(decay_CBHLL[c] + m_BHL.unsqueeze(-2) - at_i_BHL1)
            strength_BHL1 = torch.exp(gate_BHL - m_BHL).unsqueeze(-1)
            k_BHLK, u_BHLW = _replace(k_BHLK, strength_BHL1 * u_BHLW, D_BHLL, w_BHL1, start_BHKW)
        # [B, H, I, K] @ [B, H, K, J] -> [B, H, I, J];  @ [B, H, J, W] -> [B, H, I, W]
        read_BHLW = ((q_BHLK @ k_BHLK.transpose(-1, -2)) * D_BHLL) @ u_BHLW
        if start_BHKW is not None:
            read_BHLW = read_BHLW + (w_BHL1 * q_BHLK) @ start_BHKW
        h_BHLV, nq_BHL1 = read_BHLW[..., :-1], read_BHLW[..., -1:]
        if options.read == "orthogonal":
            read = partial(_orthogonal, options=options)
            inputs = (q_BHLK, k_BHLK, u_BHLW[..., :-1], w_BHL1, D_BHLL, C_BHKW[..., :-1])
            factored_BHLV = recompute(read, *inputs)
            h_BHLV = factored_BHLV if blend is None else blend * factored_BHLV + (1 - blend) * h_BHLV
        if options.normaliser:
            h_BHLV = h_BHLV / (torch.maximum(nq_BHL1.abs(), torch.exp(-at_i_BHL1)) + 1e-6)
        outputs.append(h_BHLV)
        # [B, H, K, J] @ [B, H, J, W] -> [B, H, K, W]
        C_BHKW = (k_BHLK * D_BHLL[..., -1, :, None]).transpose(-1, -2) @ u_BHLW
        if start_BHKW is not None:
            C_BHKW = w_BHL1[..., -1:, :] * start_BHKW + C_BHKW
        fresh = False
        m_BH = m_BHL[..., -1]
    h_BTHV = join(torch.stack(outputs), time)
    return h_BTHV, (C_BHKW[..., :-1], C_BHKW[..., -1], m_BH)


def _replace(
    k_BHLK: Tensor, v_BHLW: Tensor, D_BHLL: Tensor, w_BHL1: Tensor, start_BHKW: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Keys at length 1, and what a chunk's delta writes add under them."""
    unit_BHLK = unit(k_BHLK)
    right_BHLW = (k_BHLK * unit_BHLK).sum(dim=-1, keepdim=True) * v_BHLW
    if start_BHKW is not None:
        right_BHLW = right_BHLW - (w_BHL1 * unit_BHLK) @ start_BHKW
    # solve_triangular with unitriangular=True takes the diagonal for 1 and reads nothing above it.
    system_BHLL = (unit_BHLK @ unit_BHLK.transpose(-1, -2)) * D_BHLL
    solved_BHLW = torch.linalg.solve_triangular(system_BHLL, right_BHLW, upper=False, unitriangular=True)
    return unit_BHLK, solved_BHLW


def _orthogonal(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    u_BHLV: Tensor,
    w_BHL1: Tensor,
    D_BHLL: Tensor,
    C_BHKV: Tensor,
    *,
    options: Options,
) -> Tensor:
    """Every step's C of a chunk, and its read `[B, H, L, V]`."""
    written_BHLKV = k_BHLK.unsqueeze(-1) * u_BHLV.unsqueeze(-2)
    # [B, H, I, J] @ [B, H, J, K·V] -> [B, H, I, K·V]
    own_BHLKV = (D_BHLL @ written_BHLKV.flatten(-2)).unflatten(-1, written_BHLKV.shape[-2:])
    C_BHLKV = own_BHLKV + w_BHL1.unsqueeze(-1) * C_BHKV.unsqueeze(-3)
    return orthogonal_read(
        C_BHLKV,
        q_BHLK,
        options.iterations,
        factor=options.factor,
        straight_through=options.straight_through,
    )
