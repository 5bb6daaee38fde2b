"""The definition of the multi-head tanh RNN. Legend: B rows, T time, H heads, K head width."""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.clip import ClipAt, read_and_carry


def reference(
    x_BTHK: Tensor, weight_HKK: Tensor, state_BHK: Tensor, clip: float | None, clip_at: ClipAt
) -> tuple[Tensor, Tensor]:
    """See `rnn`; every tensor has the state's dtype. Heads stand before rows, one product of a batch each."""
    h_HBK = state_BHK.transpose(0, 1)
    outputs = []
    for x_HBK in x_BTHK.permute(1, 2, 0, 3).unbind():
        # [H, B, K] @ [H, K, K] -> [H, B, K]
        h_HBK = torch.tanh(torch.baddbmm(x_HBK, h_HBK, weight_HKK))
        y_HBK, h_HBK = read_and_carry(h_HBK, clip, clip_at)
        outputs.append(y_HBK)
    return torch.stack(outputs).permute(2, 0, 1, 3), h_HBK.transpose(0, 1)
