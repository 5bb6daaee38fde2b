"""Gated DeltaNet. Legend: B rows, T time, D width, H heads, K key width, V value width, J = H·(2K + V)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.kernels.delta_rule import delta_rule
from statelab.models.conv import CausalConv, ConvState
from statelab.models.decay import initial_A_log, log_decay
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import inverse_softplus_of_step, linear, undecayed

State = tuple[ConvState, Tensor]


@dataclass(frozen=True, kw_only=True)
class GatedDeltaConfig(MixerConfig):
    """Gated DeltaNet: a matrix state that decays and replaces what it holds under a key.

    Source: Yang et al. 2024, arXiv 2412.06464; layer of flash-linear-attention's GatedDeltaNet.
    Eigenvalues in [-1, 1]: Grazzi et al. 2024, arXiv 2411.12537.
    """

    heads: Annotated[int, "independent states"] = 2
    head_dim: Annotated[int, "key width of a head; 0 for width / heads"] = 0
    expand_v: Annotated[float, "value width of a head, in key widths"] = 2.0
    conv: Annotated[int, "taps of the causal convolution on q, k, v; 0 for none"] = 4
    gate: Annotated[bool, "multiply the normed outputs by SiLU of a projection of the input"] = True
    eigenvalues: Annotated[
        Literal["[0,1]", "[-1,1]"], "range of a step's eigenvalue along its key; [-1,1] doubles beta"
    ] = "[0,1]"

    def __post_init__(self) -> None:
        if self.heads < 1 or self.head_dim < 0 or self.expand_v <= 0:
            raise ValueError(
                f"gated_delta: heads {self.heads} must be >= 1, head_dim {self.head_dim} >= 0 "
                f"and expand_v {self.expand_v} > 0"
            )
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"gated_delta: conv {self.conv} must be 0 (none) or >= 2 taps")

    def check(self, width: int) -> None:
        if not self.head_dim and width % self.heads:
            raise ValueError(
                f"gated_delta: width {width} is not a multiple of {self.heads} heads; set head_dim"
            )
        keys = self.head_dim or width // self.heads
        if (keys * self.expand_v) % 1:
            raise ValueError(
                f"gated_delta: expand_v {self.expand_v} times key width {keys} must be whole, "
                f"got {keys * self.expand_v}"
            )


class GatedDelta(nn.Module):
    """y = W_o (norm(o) ⊙ SiLU(z)), with o read from the state of `kernels.delta_rule`.

    | symbol | meaning | in arXiv 2412.06464 and flash-linear-attention |
    |---|---|---|
    | q, k, v | projections, convolved, SiLU; q and k of unit length | same; section 3.4 |
    | e^g = exp(−A softplus(a + dt_bias)) | decay of a step | α_t, Mamba-2's parametrisation |
    | β = σ(b), or 2σ(b) | writing strength | β_t; `allow_neg_eigval` doubles it |
    | z | output gate | `g_proj` |

    A step's eigenvalue along its key is e^g (1 − β), in (0, 1), or in (−1, 1) with β doubled. Initial
    values: A ~ U(0, 16), softplus(dt_bias) log-uniform in [1e-3, 0.1], projections and convolutions
    torch's own, as the layer there has them. We differ in one fused projection and one fused
    convolution, the same function.
    """

    def __init__(self, config: GatedDeltaConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        self.heads = config.heads
        self.keys = config.head_dim or width // config.heads
        self.values = round(self.keys * config.expand_v)
        mixed, inner = self.heads * (2 * self.keys + self.values), self.heads * self.values
        self.sizes = (mixed, self.heads, self.heads, inner if config.gate else 0)
        self.in_proj = linear(width, sum(self.sizes))
        self.conv = CausalConv(mixed, config.conv, bias=False, activation="silu") if config.conv else None
        self.A_log = undecayed(initial_A_log(self.heads))
        self.dt_bias = undecayed(inverse_softplus_of_step(self.heads))
        self.norm = RMSNorm(self.values)
        self.out_proj = linear(inner, width)

    @property
    def state_size(self) -> int:
        return self.heads * self.keys * self.values + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, S_BHKV = state or ((), None)
        mixed_BTJ, a_BTH, b_BTH, z_BTI = self.in_proj(x_BTD).split(self.sizes, dim=-1)
        if self.conv:
            mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        else:
            mixed_BTJ = F.silu(mixed_BTJ)
        q_BTHK, k_BTHK, v_BTHV = self._heads(mixed_BTJ)
        log_decay_BTH = log_decay(a_BTH, self.A_log, self.dt_bias)
        beta_BTH = writing_strength(b_BTH, self.config.eigenvalues)
        o_BTHV, S_BHKV = delta_rule(q_BTHK, k_BTHK, v_BTHV, log_decay_BTH, beta_BTH, S_BHKV)
        o_BTI = self.norm(o_BTHV).flatten(-2)
        if self.config.gate:
            o_BTI = o_BTI * F.silu(z_BTI)
        return self.out_proj(o_BTI), (conv_state, S_BHKV)

    def _heads(self, mixed_BTJ: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = 2 * self.heads * self.keys
        qk_BTHK, v_BTI = mixed_BTJ.split((keys, mixed_BTJ.shape[-1] - keys), dim=-1)
        qk_BTHK = unit(qk_BTHK.unflatten(-1, (2 * self.heads, self.keys)))
        q_BTHK, k_BTHK = qk_BTHK.chunk(2, dim=-2)
        return q_BTHK, k_BTHK, v_BTI.unflatten(-1, (self.heads, self.values))


def writing_strength(b: Tensor, eigenvalues: str) -> Tensor:
    """β = σ(b), in float32 or wider; twice that where eigenvalues may lie in "[-1,1]"."""
    beta = torch.sigmoid(widen(b))
    return beta * 2 if eigenvalues == "[-1,1]" else beta


def unit(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / √(‖x‖² + eps) over the last axis, as flash-linear-attention's `l2norm`."""
    wide = widen(x)
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + eps)).to(x.dtype)
