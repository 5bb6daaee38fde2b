"""The definition of the gated delta rule. Legend: B rows, T time, H heads, K key width, V value width."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `delta_rule`; queries are scaled and every tensor has the state's dtype."""
    outputs = []
    for t in range(q_BTHK.shape[1]):
        state_BHKV = log_decay_BTH[:, t, :, None, None].exp() * state_BHKV
        # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
        held_BHV = (k_BTHK[:, t, :, None, :] @ state_BHKV).squeeze(-2)
        error_BHV = beta_BTH[:, t, :, None] * (v_BTHV[:, t] - held_BHV)
        # [B, H, K, 1] * [B, H, 1, V] -> [B, H, K, V]
        state_BHKV = state_BHKV + k_BTHK[:, t, :, :, None] * error_BHV[:, :, None, :]
        # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
        outputs.append((q_BTHK[:, t, :, None, :] @ state_BHKV).squeeze(-2))
    return torch.stack(outputs, dim=1), state_BHKV
