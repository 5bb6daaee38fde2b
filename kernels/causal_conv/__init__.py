"""Short causal convolution of each channel with itself.

Legend: B rows, T time, C channels, J taps, S = T + J − 1 inputs with those before the sequence.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from statelab.kernels.causal_conv.reference import reference
from statelab.kernels.causal_conv.shifted import shifted
from statelab.kernels.contract import check_shapes, choose_backend, widen


def causal_conv(
    x_BTC: Tensor,
    weight_JC: Tensor,
    bias_C: Tensor | None = None,
    state_BPC: Tensor | None = None,
    *,
    backend: Literal["auto", "reference", "shifted"] = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = bias + Σ_j weight[j] ⊙ x_{t−J+1+j}, `[B, T, C]`, and the last J − 1 inputs, in float32 or wider.

    `state` holds the J − 1 inputs before these, `[B, J − 1, C]`; None is zeros. Raises ValueError for shapes
    that do not fit together.
    """
    sizes = check_shapes("causal_conv", x=(x_BTC, "B T C"), weight=(weight_JC, "J C"), bias=(bias_C, "C"))
    before = sizes["J"] - 1
    if state_BPC is None:
        state_BPC = x_BTC.new_zeros(sizes["B"], before, sizes["C"])
    if list(state_BPC.shape) != [sizes["B"], before, sizes["C"]]:
        raise ValueError(
            f"causal_conv: state must be [B, J - 1, C] = [{sizes['B']}, {before}, {sizes['C']}], "
            f"got {list(state_BPC.shape)}"
        )
    run = (
        reference
        if choose_backend("causal_conv", backend, ("reference", "shifted")) == "reference"
        else shifted
    )
    past_BSC = torch.cat((state_BPC.to(x_BTC.dtype), x_BTC), dim=1)
    y_BTC = run(past_BSC, weight_JC, weight_JC.new_zeros(sizes["C"]) if bias_C is None else bias_C)
    return y_BTC, widen(past_BSC[:, sizes["T"] :])
