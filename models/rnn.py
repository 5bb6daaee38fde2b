"""A layer around the multi-head tanh RNN. Legend: B rows, T time, D width, H heads, K head width, I = H·K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.rnn import rnn
from statelab.models.conv import CausalConv, ConvState
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import linear, undecayed

State = tuple[ConvState, Tensor]


@dataclass(frozen=True, kw_only=True)
class RNNConfig(MixerConfig):
    """tanh RNN with block-diagonal state weights: a vector state without gates.

    Source: Elman 1990; layer of open-lm-engine's lm-engine, as used in arXiv 2603.14360.
    """

    heads: Annotated[int, "independent blocks of the state"] = 1
    head_dim: Annotated[int, "state values of a head; 0 for width / heads"] = 0
    conv: Annotated[int, "taps of the causal convolution before the recurrence; 0 for none"] = 4
    gate: Annotated[bool, "multiply the states by SiLU of a projection of the input"] = True
    norm: Annotated[Literal["rms", "none"], "norm of the gated states before the output projection"] = "rms"
    init_std: Annotated[float, "standard deviation of the initial state weights"] = 0.02
    gradient_clip: Annotated[float, "largest gradient of a state's entry at each step; 0 for none"] = 1.0
    clip_at: Annotated[
        Literal["total", "carried"], "clip all of a state's gradient, or what the next step sends back"
    ] = "total"
    backend: Annotated[
        Literal["auto", "reference", "triton"], "how the recurrence is computed: by torch or by a kernel"
    ] = "auto"

    def __post_init__(self) -> None:
        if self.heads < 1 or self.head_dim < 0:
            raise ValueError(f"rnn: heads {self.heads} must be >= 1 and head_dim {self.head_dim} >= 0")
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"rnn: conv {self.conv} must be 0 (none) or >= 2 taps")
        if self.init_std < 0 or self.gradient_clip < 0:
            raise ValueError(
                f"rnn: init_std {self.init_std} and gradient_clip {self.gradient_clip} must be >= 0"
            )

    def check(self, width: int) -> None:
        if not self.head_dim and width % self.heads:
            raise ValueError(f"rnn: width {width} is not a multiple of {self.heads} heads; set head_dim")


class RNN(nn.Module):
    """y = W_o norm(h ⊙ SiLU(g)), with h the states of `kernels.rnn` read from a projection of the input.

    | symbol | meaning | in lm-engine |
    |---|---|---|
    | x | what the state reads: a projection, convolved, SiLU | `input` |
    | g | output gate | `gate` |
    | W | state weights of each head, `[H, K, K]`, N(0, init_std²), not decayed | `state_weight` |

    lm-engine has no biases, draws W from N(0, 0.02²) and clips states' gradients at 1, as here. We differ
    in that projections start from torch.nn.Linear's U(±1/√D) instead of N(0, 0.02²), which suits the small
    widths studied here, and in that `conv = 0`, `gate = False` and `norm = "none"` leave those parts out;
    without convolution x gets no SiLU.
    """

    def __init__(self, config: RNNConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        self.heads = config.heads
        self.head_dim = config.head_dim or width // config.heads
        inner = self.heads * self.head_dim
        self.in_proj = linear(width, inner * (2 if config.gate else 1))
        self.conv = CausalConv(inner, config.conv, bias=False, activation="silu") if config.conv else None
        self.weight = undecayed(torch.randn(self.heads, self.head_dim, self.head_dim) * config.init_std)
        self.norm = RMSNorm(inner) if config.norm == "rms" else nn.Identity()
        self.out_proj = linear(inner, width)

    @property
    def state_size(self) -> int:
        return self.heads * self.head_dim + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, h_BHK = state or ((), None)
        x_BTI, *gate = self.in_proj(x_BTD).chunk(2 if self.config.gate else 1, dim=-1)
        if self.conv:
            x_BTI, conv_state = self.conv(x_BTI, conv_state)
        h_BTHK, h_BHK = rnn(
            x_BTI.unflatten(-1, (self.heads, self.head_dim)),
            self.weight,
            h_BHK,
            gradient_clip=self.config.gradient_clip or None,
            clip_at=self.config.clip_at,
            backend=self.config.backend,
        )
        h_BTI = h_BTHK.flatten(-2)
        if gate:
            h_BTI = h_BTI * F.silu(gate[0])
        return self.out_proj(self.norm(h_BTI)), (conv_state, h_BHK)
