"""Short causal convolution of each channel with itself.

Legend: B rows, T time, C channels, J taps, S = T + J − 1 inputs with those before the sequence.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from statelab.kernels.causal_conv.reference import reference
from statelab.kernels.causal_conv.shifted import shifted
from statelab.kernels.contract import check_shapes, choose_backend, widen

Activation = Literal["none", "silu"]


def causal_conv(
    x_BTC: Tensor,
    weight_JC: Tensor,
    bias_C: Tensor | None = None,
    state_BPC: Tensor | None = None,
    *,
    activation: Activation = "none",
    backend: Literal["auto", "reference", "shifted", "triton"] = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = a(bias + Σ_j weight[j] ⊙ x_{t−J+1+j}), `[B, T, C]` in the dtype of x, and the last J − 1 inputs, in
    float32 or wider.

    `activation`: a is nothing or SiLU. `state` holds the J − 1 inputs before these, `[B, J − 1, C]`; None is
    zeros. `triton` has kernels of up to 8 taps, with their sums in float32. Raises ValueError for shapes
    that do not fit together and an unknown activation.
    """
    sizes = check_shapes("causal_conv", x=(x_BTC, "B T C"), weight=(weight_JC, "J C"), bias=(bias_C, "C"))
    before = sizes["J"] - 1
    if state_BPC is not None and list(state_BPC.shape) != [sizes["B"], before, sizes["C"]]:
        raise ValueError(
            f"causal_conv: state must be [B, J - 1, C] = [{sizes['B']}, {before}, {sizes['C']}], "
            f"got {list(state_BPC.shape)}"
        )
    if activation not in get_args(Activation):
        raise ValueError(f"causal_conv: unknown activation {activation!r}; use none or silu")
    limit = None if sizes["J"] <= 8 else f"takes up to 8 taps, got {sizes['J']}"
    tensors = (x_BTC, weight_JC, bias_C, state_BPC)
    has = ("reference", "shifted", "triton")
    chosen = choose_backend("causal_conv", backend, has, *tensors, limit=limit)
    if chosen == "triton":
        from statelab.kernels.causal_conv.sliding import sliding

        return sliding(x_BTC, weight_JC, bias_C, state_BPC if before else None, activation == "silu")
    run = reference if chosen == "reference" else shifted
    if state_BPC is None:
        state_BPC = x_BTC.new_zeros(sizes["B"], before, sizes["C"])
    past_BSC = torch.cat((state_BPC.to(x_BTC.dtype), x_BTC), dim=1)
    y_BTC = run(past_BSC, weight_JC, weight_JC.new_zeros(sizes["C"]) if bias_C is None else bias_C)
    if activation == "silu":
        y_BTC = torch.nn.functional.silu(y_BTC)
    return y_BTC.to(x_BTC.dtype), widen(past_BSC[:, sizes["T"] :])
