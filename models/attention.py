"""Softmax attention as a layer that can be read in pieces.

Legend: B rows, T time, S times so far, D width, H heads, K head width, P = K / 2 rotated pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from statelab.kernels.attention import attention
from statelab.kernels.contract import widen
from statelab.models.conv import CausalConv, ConvState
from statelab.models.mixer import MixerConfig
from statelab.models.parameter import linear

State = tuple[ConvState, Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(MixerConfig):
    """Softmax attention over all tokens so far, with rotary positions or none.

    Source: Vaswani et al. 2017, arXiv 1706.03762. Rotary positions: Su et al. 2021, arXiv 2104.09864.
    """

    heads: Annotated[int, "attention heads"] = 4
    head_dim: Annotated[int, "width of a head; 0 for width / heads"] = 0
    position: Annotated[Literal["rope", "none"], "rotate queries and keys by their position, or not"] = "rope"
    rope_base: Annotated[float, "the slowest pair turns by about 1 / rope_base radians a token"] = 10_000.0
    conv: Annotated[int, "taps of a causal convolution on q, k, v; 0 for none"] = 0

    def __post_init__(self) -> None:
        if self.heads < 1 or self.head_dim < 0:
            raise ValueError(f"attention: heads {self.heads} must be >= 1 and head_dim {self.head_dim} >= 0")
        if self.rope_base <= 1:
            raise ValueError(f"attention: rope_base {self.rope_base} must be > 1")
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"attention: conv {self.conv} must be 0 (none) or >= 2 taps")

    def check(self, width: int) -> None:
        if not self.head_dim and width % self.heads:
            raise ValueError(
                f"attention: width {width} is not a multiple of {self.heads} heads; set head_dim"
            )
        size = self.head_dim or width // self.heads
        if self.position == "rope" and size % 2:
            raise ValueError(
                f"attention: rotary positions turn pairs, so head_dim {size} must be even; "
                "or use position = 'none'"
            )


class Attention(nn.Module):
    """y = W_o attention(q, k, v), scale 1/√K, no biases; q, k, v one projection of the input.

    Keys rotated for their position, and values, are kept as the state: what is carried grows with the
    sequence, so `state_size` is None. With `conv`, q, k and v each pass a causal convolution of every
    channel with itself, without a non-linearity. Projections start from torch.nn.Linear's U(±1/√D).
    """

    def __init__(self, config: AttentionConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        self.heads = config.heads
        self.head_dim = config.head_dim or width // config.heads
        inner = self.heads * self.head_dim
        self.in_proj = linear(width, 3 * inner)
        self.conv = CausalConv(3 * inner, config.conv, bias=False) if config.conv else None
        self.out_proj = linear(inner, width)

    @property
    def state_size(self) -> None:
        return None

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, *past = state or ((),)
        mixed_BTJ = self.in_proj(x_BTD)
        if self.conv:
            mixed_BTJ, conv_state = self.conv(mixed_BTJ, conv_state)
        q_BTHK, k_BTHK, v_BTHK = mixed_BTJ.unflatten(-1, (3, self.heads, self.head_dim)).unbind(dim=-3)
        if self.config.position == "rope":
            first = past[0].shape[1] if past else 0
            q_BTHK = rotate(q_BTHK, first, self.config.rope_base)
            k_BTHK = rotate(k_BTHK, first, self.config.rope_base)
        k_BSHK, v_BSHK = widen(k_BTHK), widen(v_BTHK)
        if past:
            k_BSHK = torch.cat((past[0], k_BSHK), dim=1)
            v_BSHK = torch.cat((past[1], v_BSHK), dim=1)
        y_BTHK = attention(q_BTHK, k_BSHK.to(q_BTHK.dtype), v_BSHK.to(q_BTHK.dtype))
        return self.out_proj(y_BTHK.flatten(-2)), (conv_state, k_BSHK, v_BSHK)


def rotate(x_BTHK: Tensor, first: int, base: float) -> Tensor:
    """Channels i and i + K/2 of the token at position p turned by the angle p · base^(−2i/K).

    Positions count from `first`. arXiv 2104.09864, eq. 34, whose pairs are neighbours: the same function up to an
    order of channels. Angles are made in float64: in float32 they would be off by 0.03 at position 10^6.
    """
    half = x_BTHK.shape[-1] // 2
    device = x_BTHK.device
    position_T = torch.arange(first, first + x_BTHK.shape[1], dtype=torch.float64, device=device)
    speed_P = base ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
    wide_BTHK = widen(x_BTHK)
    turn_T1P = (position_T[:, None] * speed_P).unsqueeze(1)
    cos_T1P, sin_T1P = turn_T1P.cos().to(wide_BTHK.dtype), turn_T1P.sin().to(wide_BTHK.dtype)
    one_BTHP, other_BTHP = wide_BTHK.split(half, dim=-1)
    turned = (one_BTHP * cos_T1P - other_BTHP * sin_T1P, one_BTHP * sin_T1P + other_BTHP * cos_T1P)
    return torch.cat(turned, dim=-1).to(x_BTHK.dtype)
