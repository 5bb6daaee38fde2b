"""The definition of causal attention: one query at a time. Legend: see `attention`."""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.contract import widen


def reference(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHV: Tensor, scale: float) -> Tensor:
    """See `attention`."""
    q_wide_BTHK, k_wide_BSHK, v_wide_BSHV = widen(q_BTHK), widen(k_BSHK), widen(v_BSHV)
    before = k_BSHK.shape[1] - q_BTHK.shape[1]
    outputs = []
    for t in range(q_BTHK.shape[1]):
        seen = before + t + 1
        # [B, 1, H, K] * [B, S, H, K] -> [B, S, H]
        scores_BSH = (q_wide_BTHK[:, t : t + 1] * k_wide_BSHK[:, :seen]).sum(dim=-1) * scale
        weights_BSH1 = torch.softmax(scores_BSH, dim=1).unsqueeze(-1)
        outputs.append((weights_BSH1 * v_wide_BSHV[:, :seen]).sum(dim=1))
    return torch.stack(outputs, dim=1).to(v_BSHV.dtype)
