"""Mamba-2's recurrence by chunks of time: quadratic inside a chunk, recurrent between chunks.

Legend: B rows, T time, C chunks, L steps of a chunk, H heads, P head width, G groups, E heads of a group,
N state width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.chunks import decay_between, join, split

LENGTH = 64
"""Steps of a chunk."""


def chunk(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor,
    length: int = LENGTH,
    *,
    fresh: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `ssd`; every tensor has the state's dtype.

    `fresh`: the state is zeros, so that a single chunk need not read it.
    """
    time, groups = x_BTHP.shape[1], write_BTGN.shape[2]
    length = min(length, time)
    x_CBHLP = split(x_BTHP, length)
    # Filled-up steps have decay 1 and write 0, so the last state is that of the last true step.
    cum_CBHL = split(log_decay_BTH, length).cumsum(dim=-1)
    write_CBGLN, read_CBGLN = split(write_BTGN, length), split(read_BTGN, length)
    # [C, B, G, L, N] @ [C, B, G, N, L] -> [C, B, G, L, L], shared by the E heads of a group
    scores_CBGLL = read_CBGLN @ write_CBGLN.transpose(-1, -2)
    mix_CBGELL = decay_between(cum_CBHL).exp().unflatten(2, (groups, -1)) * scores_CBGLL.unsqueeze(3)
    y_CBHLP = mix_CBGELL.flatten(2, 3) @ x_CBHLP
    heads_per_group = x_BTHP.shape[2] // groups
    write_CBHLN = write_CBGLN.repeat_interleave(heads_per_group, dim=2)
    # Each chunk's own part of the state at its end: [C, B, H, P, L] @ [C, B, H, L, N] -> [C, B, H, P, N]
    to_end_CBHL = (cum_CBHL[..., -1:] - cum_CBHL).exp()
    added_CBHPN = (x_CBHLP * to_end_CBHL.unsqueeze(-1)).transpose(-1, -2) @ write_CBHLN
    if fresh and len(added_CBHPN) == 1:
        return join(y_CBHLP, time), added_CBHPN.squeeze(0)
    chunk_decay_CBH = cum_CBHL[..., -1].exp()
    starts = []
    for added_BHPN, decay_BH in zip(added_CBHPN.unbind(), chunk_decay_CBH.unbind(), strict=True):
        starts.append(state_BHPN)
        state_BHPN = decay_BH[..., None, None] * state_BHPN + added_BHPN
    read_CBHLN = read_CBGLN.repeat_interleave(heads_per_group, dim=2)
    # [C, B, H, L, N] @ [C, B, H, N, P] -> [C, B, H, L, P]
    carried_CBHLP = (read_CBHLN * cum_CBHL.exp().unsqueeze(-1)) @ torch.stack(starts).transpose(-1, -2)
    return join(y_CBHLP + carried_CBHLP, time), state_BHPN
