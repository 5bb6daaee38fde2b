"""From Mamba-3's projections to what its recurrence reads: decay rates, weights, angles, B and C.

Legend: B rows, T time, R ranks, H heads, G groups, N state width, A rotated pairs.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.models.norm import RMSNorm

ROPE_BASE = 10_000.0


def decay_rate(a_BTH: Tensor, kind: Literal["rational", "softplus"], floor: float) -> Tensor:
    """−A, at least `floor`: g(a) = 1 + a where a >= 0 and 1 / (1 − a) elsewhere, or softplus(a)."""
    a_BTH = widen(a_BTH)
    # Either factor is 1 where the other is not, and neither ever divides by zero, as a `where` of both would.
    rational_BTH = (1 + F.relu(a_BTH)) / (1 + F.relu(-a_BTH))
    rate_BTH = rational_BTH if kind == "rational" else F.softplus(a_BTH)
    return rate_BTH.clamp_min(floor)


def trapezoid_weight(
    raw_BTH: Tensor, step_BTH: Tensor, kind: Literal["learned", "half", "one"]
) -> Tensor | None:
    """λ `[B, T, H]`; None for 1. `raw` has no heads unless λ is learned."""
    if kind == "one":
        return None
    return torch.sigmoid(widen(raw_BTH)) if kind == "learned" else torch.full_like(step_BTH, 0.5)


def data_angle(raw_BTA: Tensor, step_BTH: Tensor, kind: Literal["tanh", "raw"]) -> Tensor:
    """`[B, T, H, A]` in radians: one angle for all heads, times each head's step."""
    angle_BTA = widen(raw_BTA)
    if kind == "tanh":
        angle_BTA = math.pi * torch.tanh(angle_BTA)
    return angle_BTA.unsqueeze(-2) * step_BTH.unsqueeze(-1)


def position_angle(step_BTH: Tensor, pairs: int) -> Tensor:
    """`[B, T, H, A]` in radians: RoPE's frequencies, the same at every step (arXiv 2104.09864, section 3.3)."""
    order_A = torch.arange(pairs, dtype=step_BTH.dtype, device=step_BTH.device)
    return (ROPE_BASE ** (-order_A / pairs)).expand(*step_BTH.shape, pairs)


def normed(
    raw_BTM: Tensor, norm: RMSNorm, bias_RHN: Tensor | None, ranks: int, groups: int, heads: int
) -> Tensor:
    """B or C, `[B, T, R, H, N]` from `[B, T, R·G·N]`: normed over N, given to a group's heads, biased.

    Biased in float32 or wider, as mamba_ssm keeps biases.
    """
    raw_BTRGN = raw_BTM.unflatten(-1, (ranks, groups, -1))
    normed_BTRHN = norm(raw_BTRGN).repeat_interleave(heads // groups, dim=-2)
    return normed_BTRHN if bias_RHN is None else widen(normed_BTRHN) + widen(bias_RHN)


def ranked(x_BTHP: Tensor, scale_RHP: Tensor | None) -> Tensor:
    """`[B, T, R, H, P]`, of the dtype of x: the same for every rank but for its scale; R is 1 where there is none."""
    x_BT1HP = x_BTHP.unsqueeze(2)
    return x_BT1HP if scale_RHP is None else x_BT1HP * scale_RHP.to(x_BTHP.dtype)
