"""The input-dependent decay that Mamba-2, Gated DeltaNet and M²RNN share. Legend: B rows, T time, H heads."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import widen


def log_decay(a_BTH: Tensor, A_log_H: Tensor, dt_bias_H: Tensor) -> Tensor:
    """−e^A_log softplus(a + dt_bias), `[B, T, H]`, in float32 or wider: near 1, a decay in 16 bits would
    stop being one."""
    return -widen(A_log_H).exp() * F.softplus(widen(a_BTH) + widen(dt_bias_H))


def initial_A_log(heads: int, low: float = 0.0, high: float = 16.0, floor: float = 1e-4) -> Tensor:
    """`[heads]` logarithms of A ~ U(low, high), A at least `floor`: log 0 is not a number to train."""
    return torch.empty(heads).uniform_(low, high).clamp_min(floor).log()
