"""Gated DeltaProduct.

Legend: B rows, T time, N factors of a token, D width, H heads, K key width, V value width, I = H·V, J = H·K +
N·H·(K + V).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.delta_product import delta_product
from statelab.models.conv import CausalConv, ConvState
from statelab.models.decay import initial_A_log, log_decay
from statelab.models.gated_delta import unit, writing_strength
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import inverse_softplus_of_step, linear, undecayed

State = tuple[ConvState, Tensor]


@dataclass(frozen=True, kw_only=True)
class GatedDeltaProductConfig(MixerConfig):
    """Gated DeltaProduct: several delta-rule updates for each token, so that a step may permute what is held.

    Source: Siems et al. 2025, arXiv 2502.10297; layer of flash-linear-attention's GatedDeltaProduct.
    """

    n_h: Annotated[int, "delta-rule updates (generalised Householder factors) for each token"] = 2
    heads: Annotated[int, "independent states"] = 2
    head_dim: Annotated[int, "key width of a head; 0 for width / heads"] = 0
    expand_v: Annotated[float, "value width of a head, in key widths"] = 2.0
    conv: Annotated[int, "taps of the causal convolution on q, k, v; 0 for none"] = 4
    gate: Annotated[bool, "multiply the normed outputs by SiLU of a projection of the input"] = True
    forget_gate: Annotated[bool, "let the state decay once a token; off is no decay"] = True
    eigenvalues: Annotated[
        Literal["[0,1]", "[-1,1]"], "range of a factor's eigenvalue along its key; [-1,1] doubles beta"
    ] = "[-1,1]"

    def __post_init__(self) -> None:
        if min(self.n_h, self.heads) < 1 or self.head_dim < 0 or self.expand_v <= 0:
            raise ValueError(
                f"gated_delta_product: n_h {self.n_h} and heads {self.heads} must be >= 1, "
                f"head_dim {self.head_dim} >= 0 and expand_v {self.expand_v} > 0"
            )
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"gated_delta_product: conv {self.conv} must be 0 (none) or >= 2 taps")

    def check(self, width: int) -> None:
        if not self.head_dim and width % self.heads:
            raise ValueError(
                f"gated_delta_product: width {width} is not a multiple of {self.heads} heads; set head_dim"
            )
        keys = self.head_dim or width // self.heads
        if (keys * self.expand_v) % 1:
            raise ValueError(
                f"gated_delta_product: expand_v {self.expand_v} times key width {keys} must be whole, "
                f"got {keys * self.expand_v}"
            )


class GatedDeltaProduct(nn.Module):
    """y = W_o (norm(o) ⊙ SiLU(z)), with o read from the state of `kernels.delta_product`.

    | symbol | meaning | in arXiv 2502.10297 and flash-linear-attention |
    |---|---|---|
    | q | projection, convolved, SiLU, of unit length | same |
    | k_j, v_j, β_j | for each factor; k of unit length, β = σ(b) or 2σ(b) | n_h of them, j the slowest axis |
    | e^g = exp(−A softplus(a + dt_bias)) | decay of a token, before its first factor | α_t |
    | z | output gate | `g_proj` |

    With n_h = 1 it is `GatedDelta`, weight for weight. Initial values as there. The published word problems
    use no convolution, no output gate, no forget gate and expand_v 1. We differ in one fused projection and one
    fused convolution, the same function.
    """

    def __init__(self, config: GatedDeltaProductConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        self.heads = config.heads
        self.keys = config.head_dim or width // config.heads
        self.values = round(self.keys * config.expand_v)
        factors, inner = config.n_h * self.heads, self.heads * self.values
        self.parts = (self.heads * self.keys, factors * self.keys, factors * self.values)
        forget, gate = self.heads if config.forget_gate else 0, inner if config.gate else 0
        self.sizes = (sum(self.parts), forget, factors, gate)
        self.in_proj = linear(width, sum(self.sizes))
        self.conv = (
            CausalConv(sum(self.parts), config.conv, bias=False, activation="silu") if config.conv else None
        )
        if config.forget_gate:
            self.A_log = undecayed(initial_A_log(self.heads))
            self.dt_bias = undecayed(inverse_softplus_of_step(self.heads))
        self.norm = RMSNorm(self.values)
        self.out_proj = linear(inner, width)

    @property
    def state_size(self) -> int:
        return self.heads * self.keys * self.values + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, S_BHKV = state or ((), None)
        config = self.config
        mixed_BTJ, a_BTH, b_BTX, z_BTI = self.in_proj(x_BTD).split(self.sizes, dim=-1)
        if self.conv:
            mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        else:
            mixed_BTJ = F.silu(mixed_BTJ)
        q_BTX, k_BTX, v_BTX = mixed_BTJ.split(self.parts, dim=-1)
        o_BTHV, S_BHKV = delta_product(
            unit(q_BTX.unflatten(-1, (self.heads, self.keys))),
            unit(k_BTX.unflatten(-1, (config.n_h, self.heads, self.keys))),
            v_BTX.unflatten(-1, (config.n_h, self.heads, self.values)),
            log_decay(a_BTH, self.A_log, self.dt_bias) if config.forget_gate else None,
            writing_strength(b_BTX, config.eigenvalues).unflatten(-1, (config.n_h, self.heads)),
            S_BHKV,
        )
        o_BTI = self.norm(o_BTHV).flatten(-2)
        if config.gate:
            o_BTI = o_BTI * F.silu(z_BTI)
        return self.out_proj(o_BTI), (conv_state, S_BHKV)
