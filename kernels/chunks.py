"""What the parallel forms share: cutting time into chunks, and decays between two steps of a chunk.

Legend: B rows, T time, C chunks, L steps of a chunk, H heads; … whatever stands behind.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def split(x_BTH: Tensor, length: int, pad: float = 0.0) -> Tensor:
    """`[B, T, H, …]` as `[C, B, H, L, …]`, T filled up to a multiple of L with `pad`."""
    missing = -x_BTH.shape[1] % length
    if missing:
        x_BTH = F.pad(x_BTH, (0, 0) * (x_BTH.dim() - 2) + (0, missing), value=pad)
    # [B, C, L, H, …] -> [C, B, H, L, …]
    chunks_BCLH: Tensor = x_BTH.unflatten(1, (-1, length))
    return chunks_BCLH.movedim(3, 2).movedim(1, 0)


def join(x_CBHL: Tensor, time: int) -> Tensor:
    """`[C, B, H, L, …]` as `[B, T, H, …]`, without what `split` filled up."""
    return x_CBHL.movedim(0, 1).movedim(2, 3).flatten(1, 2)[:, :time]


def decay_between(log_decay_L: Tensor) -> Tensor:
    """From log decays summed up to each step, `[…, L]`, the log of the decay from step j to i, `[…, L, L]`.

    −inf, a decay of 0, where j > i. Masked before any exponential, since the decay from a later step may
    overflow.
    """
    steps = log_decay_L.shape[-1]
    later_LL = torch.ones(steps, steps, dtype=torch.bool, device=log_decay_L.device).triu(1)
    return (log_decay_L.unsqueeze(-1) - log_decay_L.unsqueeze(-2)).masked_fill(later_LL, -torch.inf)
