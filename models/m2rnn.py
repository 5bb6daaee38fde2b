"""M²RNN's layer.

Legend: B rows, T time, D width, H heads, G groups of heads that share q and k, K key width, V value width, I =
H·V, J = 2·G·K + H·V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.m2rnn import m2rnn
from statelab.models.conv import CausalConv, ConvState
from statelab.models.decay import initial_A_log, log_decay
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import inverse_softplus_of_step, linear, undecayed

State = tuple[ConvState, Tensor]


@dataclass(frozen=True, kw_only=True)
class M2RNNConfig(MixerConfig):
    """M²RNN: a matrix state written by outer products, through a tanh at every step.

    Source: Mishra et al. 2026, arXiv 2603.14360; layer of open-lm-engine's lm-engine, M2RNN.
    """

    heads: Annotated[int, "states: values, forget gates and state weights"] = 4
    qk_heads: Annotated[int, "queries and keys; 1 shares one with all heads, `heads` gives each its own"] = 1
    key_dim: Annotated[int, "key width of a state"] = 64
    value_dim: Annotated[int, "value width of a state; 0 for width / heads"] = 0
    conv: Annotated[int, "taps of the causal convolution on q, k, v; 0 for none"] = 4
    gate: Annotated[bool, "multiply the outputs by SiLU of a projection of the input"] = True
    norm: Annotated[Literal["rms", "none"], "norm of the gated outputs, over all heads"] = "rms"
    forget_gate: Annotated[bool, "keep a share f of the state at each step; off is f = 0"] = True
    residual: Annotated[bool, "add the value, weighted by channel, to what is read"] = True
    gradient_clip: Annotated[float, "largest gradient of a state's entry at each step; 0 for none"] = 1.0
    clip_at: Annotated[
        Literal["total", "carried"], "clip all of a state's gradient, or what the next step sends back"
    ] = "total"
    backend: Annotated[
        Literal["auto", "reference", "triton"], "how the recurrence is computed: by torch or by a kernel"
    ] = "auto"

    def __post_init__(self) -> None:
        if min(self.heads, self.qk_heads, self.key_dim) < 1 or self.value_dim < 0:
            raise ValueError(
                f"m2rnn: heads {self.heads}, qk_heads {self.qk_heads} and key_dim {self.key_dim} must be >= 1 "
                f"and value_dim {self.value_dim} >= 0"
            )
        if self.heads % self.qk_heads:
            raise ValueError(f"m2rnn: qk_heads {self.qk_heads} must divide heads {self.heads}")
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"m2rnn: conv {self.conv} must be 0 (none) or >= 2 taps")
        if self.gradient_clip < 0:
            raise ValueError(f"m2rnn: gradient_clip {self.gradient_clip} must be >= 0")

    def check(self, width: int) -> None:
        if not self.value_dim and width % self.heads:
            raise ValueError(f"m2rnn: width {width} is not a multiple of {self.heads} heads; set value_dim")


class M2RNN(nn.Module):
    """y = W_o norm((Sᵀq + w_r ⊙ v) ⊙ SiLU(g)), with S the state of `kernels.m2rnn`.

    | symbol | meaning | in arXiv 2603.14360 and lm-engine |
    |---|---|---|
    | q, k, v | projections, convolved together, SiLU | eq. 14-16 |
    | f = exp(−A softplus(a + dt_bias)) | share of the state kept | eq. 13, 17: α, β are A, dt_bias |
    | W | state weight of each head, `[H, V, V]`, starts as I | `state_weight` |
    | w_r | direct path of the value, `[H, V]`, starts as 1 | `D` |
    | g | output gate, not convolved; the norm follows it, over all heads | eq. 18-23, `g_norm` |

    Initial values are lm-engine's: A ~ U(0, 16), softplus(dt_bias) log-uniform in [1e-3, 0.1], no biases; A,
    dt_bias and w_r are not decayed, W is. We differ in that projections start from torch.nn.Linear's
    U(±1/√D) and convolutions from torch's own, in keeping f in float32 where they round it to the
    activations' 16 bits, and in that without convolution q, k, v get no SiLU. The published models have K =
    64, V = 16, one q and k, and no position encoding.
    """

    def __init__(self, config: M2RNNConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        self.heads = config.heads
        self.values = config.value_dim or width // config.heads
        inner, shared = self.heads * self.values, config.qk_heads * config.key_dim
        self.parts = (shared, shared, inner)
        gates = (self.heads if config.forget_gate else 0, inner if config.gate else 0)
        self.sizes = (sum(self.parts), *gates)
        self.in_proj = linear(width, sum(self.sizes))
        self.conv = (
            CausalConv(sum(self.parts), config.conv, bias=False, activation="silu") if config.conv else None
        )
        self.weight = nn.Parameter(torch.eye(self.values).repeat(self.heads, 1, 1))
        if config.forget_gate:
            self.A_log = undecayed(initial_A_log(self.heads))
            self.dt_bias = undecayed(inverse_softplus_of_step(self.heads))
        if config.residual:
            self.D = undecayed(torch.ones(self.heads, self.values))
        self.norm = RMSNorm(inner) if config.norm == "rms" else nn.Identity()
        self.out_proj = linear(inner, width)

    @property
    def state_size(self) -> int:
        return self.heads * self.config.key_dim * self.values + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, S_BHKV = state or ((), None)
        config = self.config
        mixed_BTJ, a_BTH, g_BTI = self.in_proj(x_BTD).split(self.sizes, dim=-1)
        if self.conv:
            mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        q_BTX, k_BTX, v_BTI = mixed_BTJ.split(self.parts, dim=-1)
        v_BTHV = v_BTI.unflatten(-1, (self.heads, self.values))
        y_BTHV, S_BHKV = m2rnn(
            q_BTX.unflatten(-1, (config.qk_heads, config.key_dim)),
            k_BTX.unflatten(-1, (config.qk_heads, config.key_dim)),
            v_BTHV,
            log_decay(a_BTH, self.A_log, self.dt_bias).exp() if config.forget_gate else None,
            self.weight,
            S_BHKV,
            gradient_clip=config.gradient_clip or None,
            clip_at=config.clip_at,
            backend=config.backend,
        )
        if config.residual:
            y_BTHV = y_BTHV + self.D * v_BTHV
        y_BTI = y_BTHV.flatten(-2)
        if config.gate:
            y_BTI = y_BTI * F.silu(g_BTI)
        return self.out_proj(self.norm(y_BTI)), (conv_state, S_BHKV)
