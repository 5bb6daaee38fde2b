"""The definition of Mamba-2's recurrence.

Legend: B rows, T time, H heads, P head width, G groups, N state width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reference(
    x_BTHP: Tensor, log_decay_BTH: Tensor, write_BTGN: Tensor, read_BTGN: Tensor, state_BHPN: Tensor
) -> tuple[Tensor, Tensor]:
    """See `ssd`; every tensor has the state's dtype."""
    heads_per_group = x_BTHP.shape[2] // write_BTGN.shape[2]
    write_BTHN = write_BTGN.repeat_interleave(heads_per_group, dim=2)
    read_BTHN = read_BTGN.repeat_interleave(heads_per_group, dim=2)
    outputs = []
    for t in range(x_BTHP.shape[1]):
        decay_BH = log_decay_BTH[:, t].exp()
        # [B, H, P, 1] * [B, H, 1, N] -> [B, H, P, N]
        update_BHPN = x_BTHP[:, t, :, :, None] * write_BTHN[:, t, :, None, :]
        state_BHPN = decay_BH[..., None, None] * state_BHPN + update_BHPN
        # [B, H, P, N] @ [B, H, N] -> [B, H, P]
        outputs.append((state_BHPN * read_BTHN[:, t, :, None, :]).sum(dim=-1))
    return torch.stack(outputs, dim=1), state_BHPN
