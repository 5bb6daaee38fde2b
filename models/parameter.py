"""Parameters that an optimiser must not decay, and the initial values that several layers share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def undecayed(values: Tensor) -> nn.Parameter:
    """A parameter of these values (or this parameter itself), marked `no_weight_decay = True`."""
    parameter = values if isinstance(values, nn.Parameter) else nn.Parameter(values)
    parameter.no_weight_decay = True  # type: ignore[attr-defined]
    return parameter


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """torch's Linear and its initial values, U(±1/√inputs); a bias is not decayed."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    if bias:
        undecayed(layer.bias)
    return layer


def inverse_softplus_of_step(heads: int, low: float = 1e-3, high: float = 0.1, floor: float = 1e-4) -> Tensor:
    """`[heads]` values b with softplus(b) log-uniform in [low, high], as Mamba-2 draws `dt_bias`."""
    step_H = torch.exp(torch.rand(heads) * math.log(high / low) + math.log(low)).clamp_min(floor)
    return step_H + torch.log(-torch.expm1(-step_H))
