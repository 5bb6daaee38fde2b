"""The definition of the multi-head GRU: one loop over time. Legend: B rows, T time, H heads, K head width."""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.clip import ClipAt, read_and_carry


def reference(
    x_BTHK: Tensor,
    reset_BTHK: Tensor,
    forget_BTHK: Tensor,
    weight_HKK: Tensor,
    reset_weight_HKK: Tensor,
    forget_weight_HKK: Tensor,
    state_BHK: Tensor,
    clip: float | None,
    clip_at: ClipAt,
) -> tuple[Tensor, Tensor]:
    """See `gru`; every tensor has the state's dtype.

    Heads stand before rows inside the loop, so that a head's product is one of a batch, and both gates share
    a product: on a CPU the time goes into the number of operations of a step.
    """
    x_THBK = x_BTHK.permute(1, 2, 0, 3)
    gates_THBJ = torch.cat((reset_BTHK, forget_BTHK), dim=-1).permute(1, 2, 0, 3)
    gate_weight_HKJ = torch.cat((reset_weight_HKK, forget_weight_HKK), dim=-1)
    h_HBK = state_BHK.transpose(0, 1)
    outputs = []
    for x_HBK, gates_HBJ in zip(x_THBK.unbind(), gates_THBJ.unbind(), strict=True):
        # [H, B, K] @ [H, K, 2K] -> [H, B, 2K]
        r_HBK, f_HBK = torch.sigmoid(torch.baddbmm(gates_HBJ, h_HBK, gate_weight_HKJ)).chunk(2, dim=-1)
        # [H, B, K] @ [H, K, K] -> [H, B, K]
        z_HBK = torch.tanh(torch.baddbmm(x_HBK, h_HBK * r_HBK, weight_HKK))
        y_HBK, h_HBK = read_and_carry(torch.lerp(z_HBK, h_HBK, f_HBK), clip, clip_at)
        outputs.append(y_HBK)
    return torch.stack(outputs).permute(2, 0, 1, 3), h_HBK.transpose(0, 1)
