"""Mamba-2.

Legend: B rows, T time, D width, I = H·P inner width, H heads, P head width, G groups, N state width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.kernels.ssd import ssd
from statelab.models.conv import CausalConv, ConvState
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import inverse_softplus_of_step, linear, undecayed

State = tuple[ConvState, Tensor]


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(MixerConfig):
    """Mamba-2: a matrix state that decays by one number a head and adds what it is shown.

    Source: Dao and Gu 2024, arXiv 2405.21060; layer of state-spaces/mamba's Mamba2.
    """

    expand: Annotated[int, "inner width, in widths"] = 2
    head_dim: Annotated[int, "channels that share a decay; must divide the inner width"] = 64
    d_state: Annotated[int, "state values of a channel"] = 128
    groups: Annotated[int, "B, C pairs; heads are split evenly over them"] = 1
    conv: Annotated[int, "taps of the causal convolution on x, B, C"] = 4

    def __post_init__(self) -> None:
        if min(self.expand, self.head_dim, self.d_state, self.groups) < 1:
            raise ValueError(
                f"mamba2: expand {self.expand}, head_dim {self.head_dim}, d_state {self.d_state} and "
                f"groups {self.groups} must be >= 1"
            )
        if self.conv < 2:
            raise ValueError(f"mamba2: conv {self.conv} must be >= 2 taps")

    def check(self, width: int) -> None:
        inner = self.expand * width
        if inner % self.head_dim:
            raise ValueError(
                f"mamba2: head_dim {self.head_dim} does not divide the inner width "
                f"expand * width = {self.expand} * {width} = {inner}"
            )
        if inner // self.head_dim % self.groups:
            raise ValueError(
                f"mamba2: {inner // self.head_dim} heads (inner width {inner} / head_dim {self.head_dim}) "
                f"cannot be split evenly over {self.groups} groups"
            )


class Mamba2(nn.Module):
    """y = W_o norm((h C + D x) ⊙ SiLU(z)), with h the state of `kernels.ssd`.

    | symbol | meaning | in arXiv 2405.21060 and mamba_ssm |
    |---|---|---|
    | z, x, B, C, dt | one projection, in this order | `in_proj` |
    | x, B, C | convolved with bias, SiLU | section 7.1 |
    | Δ = softplus(dt + dt_bias) | step of a head | Δ |
    | a = exp(−Δ exp(A_log)) | decay of a head | A_t, eq. 2 |
    | D | skip of a head | `D` |

    Initial values: A ~ U(1, 16), softplus(dt_bias) log-uniform in [1e-3, 0.1], D = 1, the rest torch's
    own, and W_o divided by √blocks, as mamba_ssm's `_init_weights` rescales a residual. The norm follows
    the gate and norms each group by itself. We differ in nothing else than how the recurrence is
    computed.
    """

    def __init__(self, config: Mamba2Config, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        inner = config.expand * width
        self.heads = inner // config.head_dim
        read = config.groups * config.d_state
        self.sizes = (inner, inner + 2 * read, self.heads)
        self.in_proj = linear(width, sum(self.sizes))
        self.conv = CausalConv(inner + 2 * read, config.conv, bias=True, activation="silu")
        self.A_log = undecayed(torch.empty(self.heads).uniform_(1, 16).log())
        self.dt_bias = undecayed(inverse_softplus_of_step(self.heads))
        self.D = undecayed(torch.ones(self.heads))
        self.norm = RMSNorm(config.groups, inner // config.groups)
        self.out_proj = linear(inner, width)
        with torch.no_grad():
            self.out_proj.weight /= blocks**0.5

    @property
    def state_size(self) -> int:
        return self.heads * self.config.head_dim * self.config.d_state + self.conv.state_size

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, h_BHPN = state or ((), None)
        groups, states = self.config.groups, self.config.d_state
        z_BTI, mixed_BTJ, dt_BTH = self.in_proj(x_BTD).split(self.sizes, dim=-1)
        mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        parts = (self.sizes[0], groups * states, groups * states)
        x_BTI, write_BTM, read_BTM = mixed_BTJ.split(parts, dim=-1)
        x_BTHP = x_BTI.unflatten(-1, (self.heads, self.config.head_dim))
        # In float32 or wider: near 1, a decay in 16 bits would stop being one.
        step_BTH = F.softplus(widen(dt_BTH) + widen(self.dt_bias))
        y_BTHP, h_BHPN = ssd(
            (x_BTHP * step_BTH.unsqueeze(-1)).to(x_BTHP.dtype),
            -step_BTH * widen(self.A_log).exp(),
            write_BTM.unflatten(-1, (groups, states)),
            read_BTM.unflatten(-1, (groups, states)),
            h_BHPN,
        )
        y_BTI = (y_BTHP + widen(self.D).unsqueeze(-1) * x_BTHP).flatten(-2).to(x_BTD.dtype) * F.silu(z_BTI)
        y_BTI = self.norm(y_BTI.unflatten(-1, (groups, -1))).flatten(-2)
        return self.out_proj(y_BTI), (conv_state, h_BHPN)
