"""The gated delta product as a gated delta rule of T·J steps, read at every J-th.

Legend: B rows, T time, J factors of a token, S = T·J steps, H heads, K key width, V value width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.delta_rule.chunk import LENGTH
from statelab.kernels.delta_rule.chunk import chunk as delta_chunk


def chunk(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    state_BHKV: Tensor,
    length: int = LENGTH,
    *,
    fresh: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `delta_product`; queries are scaled and every tensor has the state's dtype.

    `length` counts steps; `fresh`: the state is zeros.
    """
    later = k_BTJHK.shape[2] - 1
    # A token's decay acts once, before its first factor: [B, T, 1, H] -> [B, T, J, H]
    log_decay_BSH = F.pad(log_decay_BTH.unsqueeze(2), (0, 0, 0, later)).flatten(1, 2)
    k_BSHK, v_BSHV, beta_BSH = (tensor.flatten(1, 2) for tensor in (k_BTJHK, v_BTJHV, beta_BTJH))
    return delta_chunk(q_BTHK, k_BSHK, v_BSHV, log_decay_BSH, beta_BSH, state_BHKV, length, fresh=fresh)
