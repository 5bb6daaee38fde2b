"""The mLSTM and its orthogonal read as one would write them first: no loop over time, everything in memory at once.

Baselines of the benchmark: the parallel form of arXiv 2405.04517 (its appendix), and every step's C with its iteration
left to autograd. Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.kernels.orthogonal_read import COEFFICIENTS


def quadratic_mlstm(
    q_BTHK: Tensor, k_BTHK: Tensor, v_BTHV: Tensor, input_BTH: Tensor, forget_BTH: Tensor
) -> Tensor:
    """`mlstm` from zeros, by T × T weights between steps; arithmetic in float32 or wider, `[B, T, H, V]`."""
    q_BHTK, k_BHTK, v_BHTV = (widen(tensor).transpose(1, 2) for tensor in (q_BTHK, k_BTHK, v_BTHV))
    weight_BHTT, m_BHT1 = _weights(input_BTH, forget_BTH)
    scores_BHTT = q_BHTK @ k_BHTK.transpose(-1, -2) * q_BHTK.shape[-1] ** -0.5 * weight_BHTT
    h_BHTV = (scores_BHTT @ v_BHTV) / _size(scores_BHTT.sum(dim=-1, keepdim=True), m_BHT1)
    h_BTHV: Tensor = h_BHTV.transpose(1, 2).to(v_BTHV.dtype)
    return h_BTHV


def materialised_read(
    q_BTHK: Tensor, k_BTHK: Tensor, v_BTHV: Tensor, input_BTH: Tensor, forget_BTH: Tensor, iterations: int = 5
) -> Tensor:
    """`mlstm` with a cubic orthogonal read from zeros: C of every step, `[B, H, T, K, V]`, iterated in full."""
    q_BHTK, k_BHTK, v_BHTV = (widen(tensor).transpose(1, 2) for tensor in (q_BTHK, k_BTHK, v_BTHV))
    weight_BHTT, m_BHT1 = _weights(input_BTH, forget_BTH)
    k_BHTK = k_BHTK * q_BHTK.shape[-1] ** -0.5
    written_BHTX = (k_BHTK.unsqueeze(-1) * v_BHTV.unsqueeze(-2)).flatten(-2)
    x_BHTKV = (weight_BHTT @ written_BHTX).unflatten(-1, (k_BHTK.shape[-1], v_BHTV.shape[-1]))
    x_BHTKV = x_BHTKV / torch.linalg.vector_norm(x_BHTKV, dim=(-2, -1), keepdim=True).clamp_min(1e-6)
    a, b, _ = COEFFICIENTS["cubic"]
    for _ in range(iterations):
        x_BHTKV = a * x_BHTKV + b * x_BHTKV @ (x_BHTKV.transpose(-1, -2) @ x_BHTKV)
    read_BHTV = (q_BHTK.unsqueeze(-2) @ x_BHTKV).squeeze(-2)
    nq_BHT1 = (q_BHTK * (weight_BHTT @ k_BHTK)).sum(dim=-1, keepdim=True)
    h_BTHV: Tensor = (read_BHTV / _size(nq_BHT1, m_BHT1)).transpose(1, 2).to(v_BTHV.dtype)
    return h_BTHV


def _weights(input_BTH: Tensor, forget_BTH: Tensor) -> tuple[Tensor, Tensor]:
    """What step j (last axis) weighs at step i, `[B, H, T, T]`, in units of e^m, and m `[B, H, T, 1]`."""
    since_BHT = F.logsigmoid(widen(forget_BTH)).transpose(1, 2).cumsum(dim=-1)
    log_BHTT = (
        since_BHT.unsqueeze(-1) - since_BHT.unsqueeze(-2) + widen(input_BTH).transpose(1, 2).unsqueeze(-2)
    )
    later_TT = torch.ones_like(log_BHTT[0, 0], dtype=torch.bool).triu(1)
    log_BHTT = log_BHTT.masked_fill(later_TT, -torch.inf)
    # The state before the first step, of zeros, has m = 0.
    m_BHT1 = torch.maximum(log_BHTT.amax(dim=-1, keepdim=True), since_BHT.unsqueeze(-1))
    return torch.exp(log_BHTT - m_BHT1), m_BHT1


def _size(nq_BHT1: Tensor, m_BHT1: Tensor) -> Tensor:
    return torch.maximum(nq_BHT1.abs(), torch.exp(-m_BHT1)) + 1e-6
