"""Short causal convolution of each channel with itself, readable in pieces.

Legend: B rows, T time, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from statelab.kernels.causal_conv import Activation, causal_conv
from statelab.models.parameter import undecayed

ConvState = Tensor | tuple[()]
"""The last inputs of a convolution; () at the start, and always where a layer has no convolution."""


class CausalConv(nn.Module):
    """`kernels.causal_conv` with its weight `[k, C]`, with `bias` its bias `[C]`, and what is done to its sums.

    Initial values are torch.nn.Conv1d's, U(±1/√k), as in Mamba-2, Gated DeltaNet and xLSTM.
    """

    def __init__(self, channels: int, size: int, *, bias: bool, activation: Activation = "none") -> None:
        super().__init__()
        self.activation = activation
        bound = size**-0.5
        self.size = size
        self.weight = nn.Parameter(torch.empty(size, channels).uniform_(-bound, bound))
        self.bias = undecayed(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    @property
    def state_size(self) -> int:
        """Floats kept per sequence: the last k − 1 inputs."""
        return (self.size - 1) * self.weight.shape[1]

    def forward(self, x_BTC: Tensor, state: ConvState = ()) -> tuple[Tensor, Tensor]:
        """`[B, T, C]` and the last k − 1 inputs `[B, k − 1, C]`, in float32 or wider."""
        state_BJC = state if isinstance(state, Tensor) else None
        return causal_conv(x_BTC, self.weight, self.bias, state_BJC, activation=self.activation)
