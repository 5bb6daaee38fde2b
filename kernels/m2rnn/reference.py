"""The definition of M²RNN's recurrence: one loop over time.

Legend: B rows, T time, H heads, G groups of heads, K key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.clip import ClipAt, read_and_carry


def reference(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_HVV: Tensor,
    state_BHKV: Tensor,
    clip: float | None,
    clip_at: ClipAt,
) -> tuple[Tensor, Tensor]:
    """See `m2rnn`; every tensor has the state's dtype.

    Heads stand before rows inside the loop, so that W multiplies all rows of a head in one product.
    """
    heads_per_group = v_BTHV.shape[2] // q_BTGK.shape[2]
    q_THB1K = q_BTGK.repeat_interleave(heads_per_group, dim=2).permute(1, 2, 0, 3).unsqueeze(-2)
    k_THBK1 = k_BTGK.repeat_interleave(heads_per_group, dim=2).permute(1, 2, 0, 3).unsqueeze(-1)
    v_THB1V = v_BTHV.permute(1, 2, 0, 3).unsqueeze(-2)
    f_THB11 = None if forget_BTH is None else forget_BTH.permute(1, 2, 0)[..., None, None].unbind()
    S_HBKV = state_BHKV.transpose(0, 1)
    keys = S_HBKV.shape[-2]
    outputs = []
    for t, (q_HB1K, k_HBK1, v_HB1V) in enumerate(
        zip(q_THB1K.unbind(), k_THBK1.unbind(), v_THB1V.unbind(), strict=True)
    ):
        # [H, B, K, 1] * [H, B, 1, V] -> [H, B, K, V];  [H, B·K, V] @ [H, V, V] -> [H, B·K, V]
        write_HJV = (k_HBK1 * v_HB1V).flatten(1, 2)
        Z_HBKV = torch.tanh(torch.baddbmm(write_HJV, S_HBKV.flatten(1, 2), weight_HVV)).unflatten(
            1, (-1, keys)
        )
        S_HBKV = Z_HBKV if f_THB11 is None else torch.lerp(Z_HBKV, S_HBKV, f_THB11[t])
        read_HBKV, S_HBKV = read_and_carry(S_HBKV, clip, clip_at)
        # [H, B, 1, K] @ [H, B, K, V] -> [H, B, 1, V]
        outputs.append((q_HB1K @ read_HBKV).squeeze(-2))
    return torch.stack(outputs).permute(2, 0, 1, 3), S_HBKV.transpose(0, 1)
