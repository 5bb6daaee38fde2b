"""The definition of the gated delta product.

Legend: B rows, T time, J factors of a token, H heads, K key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reference(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `delta_product`; queries are scaled and every tensor has the state's dtype."""
    outputs = []
    for t in range(q_BTHK.shape[1]):
        state_BHKV = log_decay_BTH[:, t, :, None, None].exp() * state_BHKV
        for j in range(k_BTJHK.shape[2]):
            k_BHK, v_BHV, beta_BH1 = k_BTJHK[:, t, j], v_BTJHV[:, t, j], beta_BTJH[:, t, j, :, None]
            # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
            held_BHV = (k_BHK.unsqueeze(-2) @ state_BHKV).squeeze(-2)
            # [B, H, K, 1] * [B, H, 1, V] -> [B, H, K, V]
            state_BHKV = state_BHKV + k_BHK.unsqueeze(-1) * (beta_BH1 * (v_BHV - held_BHV)).unsqueeze(-2)
        # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
        outputs.append((q_BTHK[:, t, :, None, :] @ state_BHKV).squeeze(-2))
    return torch.stack(outputs, dim=1), state_BHKV
