"""xLSTM's mLSTM layer. Legend: B rows, T time, D width, I inner width, H heads, K = V head width = I / H."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.contract import as_factor
from statelab.kernels.mlstm import mlstm
from statelab.kernels.whiten import whiten
from statelab.models.block_diagonal import BlockDiagonal
from statelab.models.conv import CausalConv, ConvState
from statelab.models.mixer import MixerConfig
from statelab.models.norm import LayerNorm
from statelab.models.parameter import linear, undecayed

Memory = tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]
State = tuple[ConvState, Memory]
Projections = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class MLSTMConfig(MixerConfig):
    """mLSTM: a matrix memory with exponential input gates, read plainly, orthogonalised or by least squares.

    Source: Beck et al. 2024, arXiv 2405.04517; layer of NX-AI's xlstm, mLSTMLayer. Orthogonal read and what it
    is compared with: arXiv 2607.19390.
    """

    heads: Annotated[int, "independent memories"] = 4
    block: Annotated[
        Literal["xlstm", "plain"],
        "xlstm: inside an up-projection, skip and SiLU gate; plain: at the layer's width, sigmoid gate",
    ] = "xlstm"
    qkv_block: Annotated[int, "block size of the xlstm block's block-diagonal q, k, v projections"] = 4
    expand: Annotated[float, "the xlstm block's inner width, in widths, rounded up to a multiple of 64"] = 2.0
    conv: Annotated[int, "taps of the causal convolution before q and k; 0 for none"] = 4
    read: Annotated[
        Literal["plain", "orthogonal", "rls"],
        "read the memory itself, its orthogonal factor, or the ridge regression of values on keys",
    ] = "plain"
    factor: Annotated[
        Literal["cubic", "quintic", "polar"],
        "the orthogonal read's factor: by cubic or by Muon's quintic Newton-Schulz iterations, or exact",
    ] = "cubic"
    iterations: Annotated[int, "Newton-Schulz iterations of the orthogonal read"] = 5
    read_precision: Annotated[
        Literal["auto", "bf16", "fp16", "tf32", "bf16x3", "bf16x6"],
        "operands of the orthogonal read's kernel, on a CUDA device; auto keeps gradients within 1e-3",
    ] = "auto"
    straight_through: Annotated[
        Literal["off", "forward", "backward"],
        "let the forward pass alone, or the backward pass alone, see the orthogonal factor",
    ] = "off"
    blend: Annotated[
        float, "part of the orthogonal read, the rest read plainly; may be set while training"
    ] = 1.0
    ridge: Annotated[float, "ridge of the rls read"] = 0.01
    write: Annotated[
        Literal["add", "delta"], "add to the memory, or first erase what it holds under the key"
    ] = "add"
    normaliser: Annotated[bool, "divide what is read by max(|n q|, 1)"] = True
    backend: Annotated[
        Literal["auto", "reference", "chunk", "triton"],
        "how the recurrence is computed: by steps, by chunks, or by chunks in a kernel of its own",
    ] = "auto"

    def __post_init__(self) -> None:
        if min(self.heads, self.qkv_block) < 1 or self.expand <= 0:
            raise ValueError(
                f"mlstm: heads {self.heads} and qkv_block {self.qkv_block} must be >= 1 "
                f"and expand {self.expand} > 0"
            )
        if self.conv < 0 or self.conv == 1:
            raise ValueError(f"mlstm: conv {self.conv} must be 0 (none) or >= 2 taps")
        if self.iterations < 0:
            raise ValueError(f"mlstm: iterations {self.iterations} must be >= 0")
        if not 0 <= self.blend <= 1:
            raise ValueError(f"mlstm: blend {self.blend} must lie in 0..1")
        if self.ridge <= 0:
            raise ValueError(f"mlstm: ridge {self.ridge} must be > 0")

    def check(self, width: int) -> None:
        inner = self.inner(width)
        if self.block == "plain" and width % self.heads:
            raise ValueError(f"mlstm: heads {self.heads} must divide the plain block's width {width}")
        for name, size in (("heads", self.heads), ("qkv_block", self.qkv_block)):
            if self.block == "xlstm" and inner % size:
                raise ValueError(
                    f"mlstm: {name} {size} must divide the inner width {inner} "
                    f"(expand {self.expand} * width {width}, rounded up to a multiple of 64)"
                )

    def inner(self, width: int) -> int:
        """Inner width: `expand` widths rounded up to a multiple of 64, or the width of a plain block."""
        return width if self.block == "plain" else int(-(-self.expand * width // 64)) * 64


def _note_blend(layer: MLSTM, _: object) -> None:
    if layer.blend is not None and bool(layer.blend != 1):
        layer.blended = True


class MLSTM(nn.Module):
    """y = W_down ((norm(h) + skip ⊙ c) ⊙ SiLU(z)), with h read from the memory of `kernels.mlstm`.

    | symbol | meaning | in xlstm |
    |---|---|---|
    | u, z | the two halves of the up-projection | `proj_up` |
    | c | u, convolved with bias, SiLU | `conv1d`, `conv_act_fn` |
    | q, k from c; v from u | block-diagonal projections | `q_proj`, `k_proj`, `v_proj` |
    | ĩ, f̃ | linear in [q, k, v], one a head | `igate`, `fgate`; arXiv 2405.04517 eq. 25, 26 |
    | norm | layer norm of each head, weight only | `outnorm` |
    | skip | weight of each channel | `learnable_skip` |

    The plain block is y = W_down (norm(h) ⊙ σ(z)), arXiv 2405.04517 eq. 19-27 with the head norm and output
    projection that xLSTM-7B (arXiv 2503.13427) puts behind it: u is x, z a projection of x, q, k, v full ones.

    Initial values are xlstm's, in both blocks: up, z and q, k, v N(0, 2/(5D)); down N(0, (2/blocks)²/D); gate
    weights 0, f̃ bias from 3 to 6 over the heads, ĩ bias N(0, 0.1²); skip 1. We differ in one fused gate
    projection, the same function, and in starting m at 0 in the parallel form too, as xlstm's step does; there m
    starts at −∞, seen by the eps of the denominator alone. `models.xlstm_weights` takes over xlstm's parameters.

    `blend`, a buffer that an orthogonal read has, is its part in what is read: see `models.blend`.
    """

    blend: Tensor | None

    def __init__(self, config: MLSTMConfig, width: int, blocks: int = 1) -> None:
        super().__init__()
        config.check(width)
        self.config = config
        inner = config.inner(width)
        self.head_dim = inner // config.heads
        small = (2 / (5 * width)) ** 0.5
        self.plain = config.block == "plain"
        self.up = linear(width, inner if self.plain else 2 * inner)
        self.conv = CausalConv(inner, config.conv, bias=True, activation="silu") if config.conv else None
        size = inner if self.plain else config.qkv_block
        self.q, self.k, self.v = (BlockDiagonal(inner, size, small) for _ in range(3))
        self.gates = linear(3 * inner, 2 * config.heads, bias=True)
        undecayed(self.gates.weight)
        self.norm = LayerNorm(config.heads, self.head_dim)
        self.skip = None if self.plain else undecayed(torch.ones(inner))
        self.down = linear(inner, width)
        orthogonal = config.read == "orthogonal"
        self.register_buffer("blend", torch.tensor(config.blend) if orthogonal else None)
        self.blended = config.blend != 1
        """Whether to read plainly too, if only to blend none of it in: set with `blend`, which a captured step may
        change but cannot ask."""
        self.register_load_state_dict_post_hook(_note_blend)
        with torch.no_grad():
            self.up.weight.normal_(std=small)
            self.down.weight.normal_(std=2 / blocks / width**0.5)
            self.gates.weight.zero_()
            self.gates.bias[: config.heads].normal_(std=0.1)
            self.gates.bias[config.heads :] = torch.linspace(3, 6, config.heads)

    @property
    def state_size(self) -> int:
        rls = self.head_dim**2 if self.config.read == "rls" else 0
        memory = self.config.heads * (self.head_dim**2 + self.head_dim + 1 + rls)
        return memory + (self.conv.state_size if self.conv else 0)

    def forward(self, x_BTD: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        conv_state, memory = state or ((), None)
        x_BTD = as_factor(x_BTD)
        u_BTI, z_BTI = (x_BTD, self.up(x_BTD)) if self.plain else self.up(x_BTD).chunk(2, dim=-1)
        c_BTI = u_BTI
        if self.conv:
            c_BTI, conv_state = self.conv(u_BTI, conv_state)
        h_BTHV, memory = self._read(*self._project(u_BTI, c_BTI), memory)
        h_BTI = self.norm(h_BTHV).flatten(-2)
        if self.skip is None:
            return self.down(h_BTI * torch.sigmoid(z_BTI)), (conv_state, memory)
        return self.down((h_BTI + self.skip * c_BTI) * F.silu(z_BTI)), (conv_state, memory)

    def _project(self, u_BTI: Tensor, c_BTI: Tensor) -> Projections:
        """q, k, v `[B, T, I]` and the gates `[B, T, 2H]`, before their functions."""
        blockwise = self.q.weight.shape[0] > 1 and u_BTI.device.type != "cuda"
        return self._project_blocks(u_BTI, c_BTI) if blockwise else self._project_densely(u_BTI, c_BTI)

    def _project_blocks(self, u_BTI: Tensor, c_BTI: Tensor) -> Projections:
        qkv = (self.q(c_BTI), self.k(c_BTI), self.v(u_BTI))
        return *qkv, self.gates(torch.cat(qkv, dim=-1))

    def _project_densely(self, u_BTI: Tensor, c_BTI: Tensor) -> Projections:
        """One product for all that is made from c and one for all from u, blocks among zeros: a graphics card
        multiplies faster than it reads. Gates are linear in q, k and v, so in c and u."""
        inner, gates = c_BTI.shape[-1], self.gates.weight.shape[0]
        weights_3II = torch.stack([layer.dense() for layer in (self.q, self.k, self.v)])
        of_q_GI, of_k_GI, of_v_GI = self.gates.weight.unflatten(1, (3, inner)).transpose(0, 1) @ weights_3II
        # Rows up to a multiple of 16, so that rows of the result begin where wide loads may.
        rest = (0, 0, 0, -gates % 16)
        of_c = torch.cat((weights_3II[:2].flatten(0, 1), F.pad(of_q_GI + of_k_GI, rest)))
        of_u = torch.cat((weights_3II[2], F.pad(of_v_GI, rest)))
        from_c, from_u = F.linear(c_BTI, of_c), F.linear(u_BTI, of_u)
        gates_BTG = from_c[..., 2 * inner :][..., :gates] + from_u[..., inner:][..., :gates]
        q_BTI, k_BTI = from_c[..., : 2 * inner].chunk(2, dim=-1)
        return q_BTI, k_BTI, from_u[..., :inner], gates_BTG + self.gates.bias

    def _read(
        self, q_BTI: Tensor, k_BTI: Tensor, v_BTI: Tensor, gates_BTG: Tensor, memory: Memory | None
    ) -> tuple[Tensor, Memory]:
        config = self.config
        input_gate_BTH, forget_gate_BTH = gates_BTG.chunk(2, dim=-1)
        q_BTHK, k_BTHK, v_BTHV = (
            tensor.unflatten(-1, (config.heads, self.head_dim)) for tensor in (q_BTI, k_BTI, v_BTI)
        )
        gram: tuple[()] | tuple[Tensor] = ()
        if config.read == "rls":
            before_BHKK = None if memory is None else memory[-1]
            q_BTHK, gram_BHKK = whiten(
                q_BTHK, k_BTHK, before_BHKK, ridge=config.ridge, backend=config.backend
            )
            gram = (gram_BHKK,)
        h_BTHV, after = mlstm(
            q_BTHK,
            k_BTHK,
            v_BTHV,
            input_gate_BTH,
            forget_gate_BTH,
            None if memory is None else memory[:3],
            read="plain" if config.read == "rls" else config.read,
            iterations=config.iterations,
            factor=config.factor,
            straight_through=config.straight_through,
            blend=self.blend if self.blended else None,
            write=config.write,
            normaliser=config.normaliser,
            backend=config.backend,
            read_precision=config.read_precision,
        )
        return h_BTHV, (*after, *gram)
