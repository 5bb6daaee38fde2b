"""The definition of the causal convolution: one loop over time. Legend: see `causal_conv`."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(past_BSC: Tensor, weight_JC: Tensor, bias_C: Tensor) -> Tensor:
    """See `causal_conv`; `past` holds the J − 1 inputs before the sequence, then the sequence."""
    taps = weight_JC.shape[0]
    steps = range(past_BSC.shape[1] - taps + 1)
    return torch.stack([bias_C + (past_BSC[:, t : t + taps] * weight_JC).sum(dim=1) for t in steps], dim=1)
