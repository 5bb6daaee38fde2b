"""Mamba-3, single-input (SISO) and multi-input (MIMO).

Legend: B rows, T time, D width, I = H·P inner width, R ranks, H heads, P head width, N state width, A rotated pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.kernels.mamba3 import mamba3
from statelab.kernels.mamba3.reference import State as Memory
from statelab.models.conv import CausalConv, ConvState
from statelab.models.mamba3_inputs import (
    data_angle,
    decay_rate,
    normed,
    position_angle,
    ranked,
    trapezoid_weight,
)
from statelab.models.mixer import MixerConfig
from statelab.models.norm import RMSNorm
from statelab.models.parameter import inverse_softplus_of_step, linear, undecayed

State = tuple[ConvState, Memory]


@dataclass(frozen=True, kw_only=True)
class Mamba3Config(MixerConfig):
    """Mamba-3: a matrix state that decays, rotates by what it reads, and is written by a trapezoidal rule.

    Source: Lahoti et al. 2026, arXiv 2603.15569; layer of state-spaces/mamba's Mamba3. The ablations are those
    of its Tables 5, 8, 9 and 10.
    """

    expand: Annotated[int, "inner width, in widths"] = 2
    head_dim: Annotated[int, "channels that share a decay; must divide the inner width"] = 64
    heads: Annotated[int, "number of heads, in place of head_dim; 0 for inner width / head_dim"] = 0
    d_state: Annotated[int, "state values of a channel"] = 128
    groups: Annotated[int, "B, C pairs; heads are split evenly over them"] = 1
    rank: Annotated[int, "ranks R that write and read one state: 1 is SISO, the paper's MIMO has 4"] = 1
    rotation: Annotated[
        Literal["data", "rope", "none"], "turn the state by what is read, by position alone, or not"
    ] = "data"
    rope_fraction: Annotated[float, "part of the state channels that turn"] = 0.5
    phase: Annotated[
        Literal["tanh", "raw"], "a step's angle: pi tanh(projection) dt as in the code, or projection dt"
    ] = "tanh"
    trapezoid: Annotated[
        Literal["learned", "half", "one"],
        "weight of the input just read: learned, 1/2, or 1 (Euler, Mamba-2)",
    ] = "learned"
    decay: Annotated[
        Literal["rational", "softplus", "fixed"],
        "A: -(1 + a) or -1/(1 - a) as a >= 0 or not, -softplus(a) as first released, or Mamba-2's constant",
    ] = "rational"
    decay_floor: Annotated[float, "least size of a data-dependent A"] = 1e-4
    biases: Annotated[Literal["both", "B", "C", "none"], "which of B and C get a bias behind their norm"] = (
        "both"
    )
    bias_init: Annotated[Literal["1", "0", "U(0,1)", "U(-1,1)"], "initial values of the biases"] = "1"
    bias_learned: Annotated[bool, "train the biases, or leave them as they start"] = True
    conv: Annotated[int, "taps of a causal convolution and SiLU on x, B, C; 0 for none"] = 0
    norm: Annotated[
        Literal["none", "before_gate", "after_gate"], "RMS norm of the outputs, before or after the gate"
    ] = "none"
    norm_groups: Annotated[Literal["heads", "all"], "norm each head by itself, or all channels as one"] = (
        "heads"
    )
    step_min: Annotated[float, "least initial step dt"] = 1e-3
    step_max: Annotated[float, "greatest initial step dt"] = 0.1

    def __post_init__(self) -> None:
        for name in ("expand", "head_dim", "d_state", "groups", "rank"):
            if getattr(self, name) < 1:
                raise ValueError(f"mamba3: {name} {getattr(self, name)} must be >= 1")
        for name in ("heads", "decay_floor"):
            if getattr(self, name) < 0:
                raise ValueError(f"mamba3: {name} {getattr(self, name)} must be >= 0")
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"mamba3: conv {self.conv} must be 0 (none) or >= 2 taps")
        if not 0 < self.rope_fraction <= 1:
            raise ValueError(f"mamba3: rope_fraction {self.rope_fraction} must lie in (0, 1]")
        if self.rotation != "none" and not self.pairs:
            raise ValueError(
                f"mamba3: rope_fraction {self.rope_fraction} of d_state {self.d_state} channels leaves no pair "
                "to turn; use more of them, or rotation = 'none'"
            )
        if not 0 < self.step_min <= self.step_max:
            raise ValueError(f"mamba3: needs 0 < step_min <= step_max, got {self.step_min}, {self.step_max}")

    @property
    def pairs(self) -> int:
        """Pairs of state channels that turn."""
        return 0 if self.rotation == "none" else int(self.d_state * self.rope_fraction) // 2

    def head_count(self, width: int) -> int:
        """Heads of a layer of this width."""
        return self.heads or self.expand * width // self.head_dim

    def check(self, width: int) -> None:
        inner = self.expand * width
        name = "heads" if self.heads else "head_dim"
        if inner % (self.heads or self.head_dim):
            raise ValueError(
                f"mamba3: {name} {self.heads or self.head_dim} does not divide the inner width "
                f"expand * width = {self.expand} * {width} = {inner}"
            )
        if self.head_count(width) % self.groups:
            raise ValueError(
                f"mamba3: {self.head_count(width)} heads cannot be split evenly over {self.groups} groups"
            )


class Mamba3(nn.Module):
    """y = W_o Σ_r o_r ⊙ gate(h C̄_r + D x_r, z_r), with h the state of `kernels.mamba3`.

    | symbol | meaning | in arXiv 2603.15569 and mamba_ssm |
    |---|---|---|
    | z, x, B, C, dt, a, λ, θ | one projection, in this order | `in_proj`, `trap`, `angles` |
    | B, C | RMS norm over N, then a bias of each head and rank | section 3.4 |
    | Δ = softplus(dt + dt_bias) | step of a head | Δ_t |
    | A = −g(a), g(a) = 1 + a or 1 / (1 − a) | decay rate of a head, at least `decay_floor` | A_t |
    | σ(λ) | weight of the input just read | λ_t, eq. 5 |
    | π tanh(θ) Δ | what a step adds to the phase of a pair; θ of all heads, Δ of each | θ_t, eq. 9 |
    | x_r = x ⊙ `mimo_x`, z_r = z ⊙ `mimo_z`, o_r = `mimo_o` | of each rank, when R > 1 | section 3.3, App. C |
    | D | skip of a head | `D` |
    | gate(y, z) | y ⊙ SiLU(z), with a norm of y before or behind it if asked | Table 9 |

    Initial values are mamba_ssm's: softplus(dt_bias) log-uniform in [step_min, step_max], biases 1, D = 1,
    mimo_x = mimo_o = 1/R, mimo_z = 1, the rest torch's own, and W_o divided by √blocks, as its `_init_weights`
    rescales a residual; a fixed A is Mamba-2's. Where paper and code differ, defaults are the code's: tanh in
    the angle, half of the channels turned, both B and C turned by +φ. We differ in pairing neighbouring
    channels at every R, where its MIMO kernel pairs i with i + N/2, a permutation; in not decaying biases;
    and `rope` has RoPE's frequencies 10000^(−i/A) at one radian a step.
    """

    B_bias: Tensor | None
    C_bias: Tensor | None

    def __init__(self, config: Mamba3Config, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        inner, ranks, states = config.expand * width, config.rank, config.d_state
        self.heads = heads = config.head_count(width)
        self.head_dim = inner // heads
        bc = ranks * config.groups * states
        self.mixed = (inner, bc, bc)
        self.sizes = (
            inner,
            inner + 2 * bc,
            heads,
            heads if config.decay != "fixed" else 0,
            heads if config.trapezoid == "learned" else 0,
            config.pairs if config.rotation == "data" else 0,
        )
        self.in_proj = linear(width, sum(self.sizes))
        self.conv = (
            CausalConv(inner + 2 * bc, config.conv, bias=True, activation="silu") if config.conv else None
        )
        self.dt_bias = undecayed(inverse_softplus_of_step(heads, config.step_min, config.step_max))
        fixed = config.decay == "fixed"
        self.A_log = undecayed(torch.empty(heads).uniform_(1, 16).log()) if fixed else None
        self.B_norm, self.C_norm = RMSNorm(states), RMSNorm(states)
        self._add_bias("B")
        self._add_bias("C")
        shape = (ranks, heads, self.head_dim)
        self.mimo_x = nn.Parameter(torch.full(shape, 1 / ranks)) if ranks > 1 else None
        self.mimo_z = nn.Parameter(torch.ones(shape)) if ranks > 1 else None
        self.mimo_o = nn.Parameter(torch.full(shape, 1 / ranks)) if ranks > 1 else None
        self.D = undecayed(torch.ones(heads))
        norm_shape = (heads, self.head_dim) if config.norm_groups == "heads" else (inner,)
        self.norm = None if config.norm == "none" else RMSNorm(*norm_shape)
        self.out_proj = linear(inner, width)
        with torch.no_grad():
            self.out_proj.weight /= blocks**0.5

    def _add_bias(self, which: Literal["B", "C"]) -> None:
        config, name = self.config, f"{which}_bias"
        low, high = {"1": (1, 1), "0": (0, 0), "U(0,1)": (0, 1), "U(-1,1)": (-1, 1)}[config.bias_init]
        bias_RHN = torch.empty(config.rank, self.heads, config.d_state).uniform_(low, high)
        if config.biases not in (which, "both"):
            setattr(self, name, None)
        elif config.bias_learned:
            setattr(self, name, undecayed(bias_RHN))
        else:
            self.register_buffer(name, bias_RHN)

    @property
    def state_size(self) -> int:
        config = self.config
        before = 0 if config.trapezoid == "one" else config.rank * (config.d_state + self.head_dim)
        memory = self.heads * (self.head_dim * config.d_state + config.pairs + before)
        return memory + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, memory = state or ((), None)
        config, heads = self.config, (self.heads, self.head_dim)
        z_BTI, mixed_BTJ, dt_BTH, a_BTH, weight_BTH, angle_BTA = self.in_proj(x_BTD).split(self.sizes, dim=-1)
        if self.conv:
            mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        x_BTI, b_BTM, c_BTM = mixed_BTJ.split(self.mixed, dim=-1)
        x_BTRHP = ranked(x_BTI.unflatten(-1, heads), self.mimo_x)
        # In float32 or wider: near 1, a decay in 16 bits would stop being one.
        step_BTH = F.softplus(widen(dt_BTH) + widen(self.dt_bias))
        sizes = (config.rank, config.groups, self.heads)
        y_BTRHP, memory = mamba3(
            x_BTRHP,
            -step_BTH * self._rate(a_BTH),
            step_BTH,
            trapezoid_weight(weight_BTH, step_BTH, config.trapezoid),
            self._angle(angle_BTA, step_BTH),
            normed(b_BTM, self.B_norm, self.B_bias, *sizes),
            normed(c_BTM, self.C_norm, self.C_bias, *sizes),
            memory,
        )
        y_BTRHP = (y_BTRHP + widen(self.D).unsqueeze(-1) * x_BTRHP).to(x_BTD.dtype)
        y_BTRHP = self._gate(y_BTRHP, F.silu(ranked(z_BTI.unflatten(-1, heads), self.mimo_z)))
        if self.mimo_o is not None:
            y_BTRHP = y_BTRHP * self.mimo_o
        return self.out_proj(y_BTRHP.sum(dim=2).flatten(-2)), (conv_state, memory)

    def _rate(self, a_BTH: Tensor) -> Tensor:
        if self.A_log is not None:
            return widen(self.A_log).exp()
        assert self.config.decay != "fixed"
        return decay_rate(a_BTH, self.config.decay, self.config.decay_floor)

    def _angle(self, raw_BTA: Tensor, step_BTH: Tensor) -> Tensor | None:
        if self.config.rotation == "data":
            return data_angle(raw_BTA, step_BTH, self.config.phase)
        return position_angle(step_BTH, self.config.pairs) if self.config.rotation == "rope" else None

    def _gate(self, y_BTRHP: Tensor, gate_BTRHP: Tensor) -> Tensor:
        if self.norm is None:
            return y_BTRHP * gate_BTRHP
        after = self.config.norm == "after_gate"
        if after:
            y_BTRHP = y_BTRHP * gate_BTRHP
        if self.config.norm_groups == "heads":
            y_BTRHP = self.norm(y_BTRHP)
        else:
            y_BTRHP = self.norm(y_BTRHP.flatten(-2)).unflatten(-1, y_BTRHP.shape[-2:])
        return y_BTRHP if after else y_BTRHP * gate_BTRHP
