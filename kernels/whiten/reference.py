"""The definition of whitened queries. Legend: B rows, T time, H heads, K key width."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(q_BTHK: Tensor, k_BTHK: Tensor, gram_BHKK: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """See `whiten`; keys have length 1, every tensor has the state's dtype."""
    ridge_KK = ridge * torch.eye(k_BTHK.shape[-1], dtype=k_BTHK.dtype, device=k_BTHK.device)
    outputs = []
    for t in range(q_BTHK.shape[1]):
        k_BHK = k_BTHK[:, t]
        # [B, H, K, 1] * [B, H, 1, K] -> [B, H, K, K]
        gram_BHKK = gram_BHKK + k_BHK.unsqueeze(-1) * k_BHK.unsqueeze(-2)
        outputs.append(torch.linalg.solve((gram_BHKK + ridge_KK).transpose(-1, -2), q_BTHK[:, t]))
    return torch.stack(outputs, dim=1), gram_BHKK
