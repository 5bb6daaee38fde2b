"""The mLSTM with a program for each sequence: sizes and launches of the two kernels.

A program goes through the chunks of one row and head with the memory, or its gradient, in registers: of a sequence,
forward and backward read their inputs and write their outputs once, and what is kept between them are the memories at
the starts of chunks. Nothing is parallel over time, so this is for many sequences, see `tiles`.
Legend: B rows, T time, H heads, K key width, V value width, N chunks, L steps of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from statelab.kernels.mlstm.options import WIDEST_SEQUENCES
from statelab.kernels.mlstm.walk_backward import walk_gradient_kernel
from statelab.kernels.mlstm.walk_forward import walk_kernel

LENGTH = 32
"""L: products inside a chunk grow with it, those with C are made once a chunk, and a warp holds a tile of 32 × 32."""
SEQUENCES = 512
"""From how many on a program owns a sequence: nearly 4 programs for each multiprocessor of an H200."""


def configuration(K: int, V: int, precision: str) -> dict[str, int]:
    """Padded widths, and as few warps as hold the memory: sums over steps and gates are made by each warp for itself.

    Chosen by instructions and spills for sm_90. The forward spills next to nothing; the backward, a thread, nothing at
    width 16 and, with bf16 operands, at 64; at 32 it spills 64 to 100 words, and does so in three quarters of the
    instructions of twice the warps.
    """
    width = max(16, triton.next_power_of_2(max(K, V)))
    warps = 4 if width > 32 else 1 if precision == "bf16" else 2
    return {"K": K, "V": V, "BK": width, "BV": width, "L": LENGTH, "num_warps": warps, "num_stages": 1}


def pays(sequences: int, K: int, V: int, precision: str) -> bool:
    """Whether this is quicker, forward and backward, by what an H200 took (`kernels/BENCHMARKS.md`).

    With bf16 operands it is at all widths, in 0.42 to 0.83 of the time; with tf32's up to width 32, in 0.65 to 0.7,
    but not above, where the backward spills hundreds of words. Operands of several parts, which spill more, were not
    measured.
    """
    widest = {"bf16": WIDEST_SEQUENCES, "tf32": 32}.get(precision, 0)
    return sequences >= SEQUENCES and max(K, V) <= widest


def kept_like(q_BTHK: Tensor, v_BTHV: Tensor, precision: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised C `[B, H, N, K, V]`, n `[B, H, N, K]`, m `[B, H, N]`, and n·q `[B, H, T]`.

    C is rounded to what products make of it anyway.
    """
    B, T, H, K = q_BTHK.shape
    V, N = v_BTHV.shape[-1], triton.cdiv(T, LENGTH)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    C_BHNKV = v_BTHV.new_empty((B, H, N, K, V), dtype=dtype)
    n_BHNK, m_BHN, nq_BHT = (
        v_BTHV.new_empty(shape, dtype=torch.float32) for shape in ((B, H, N, K), (B, H, N), (B, H, T))
    )
    return C_BHNKV, n_BHNK, m_BHN, nq_BHT


def forward(
    inputs: Sequence[Tensor],
    start: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    *,
    normaliser: bool,
    precision: str,
) -> None:
    """From q, k, v and both gates, and C, n, m or none of them, to h, the last C, n, m, and what is kept."""
    q_BTHK, _, v_BTHV, *_ = inputs
    B, T, H, K = q_BTHK.shape
    walk_kernel[(B * H,)](
        *(*inputs, *start, *outputs),
        *(tensor.stride()[:3] for tensor in inputs),
        *(T, H, -0.5 * math.log2(K)),
        HAS_STATE=start[0] is not None,
        NORMALISER=normaliser,
        PRECISION=precision,
        **configuration(K, v_BTHV.shape[-1], precision),
    )


def backward(
    inputs: Sequence[Tensor],
    kept: Sequence[Tensor],
    dh_BTHV: Tensor,
    last: Sequence[Tensor | None],
    gradients: Sequence[Tensor],
    *,
    has_state: bool,
    normaliser: bool,
    precision: str,
) -> None:
    """From what the forward had and kept, and gradients of h and, or none of them, of the last C, n, m."""
    q_BTHK, _, v_BTHV, *_ = inputs
    B, T, H, K = q_BTHK.shape
    walk_gradient_kernel[(B * H,)](
        *(*inputs, *kept, dh_BTHV, *last, *gradients),
        *(tensor.stride()[:3] for tensor in (*inputs, dh_BTHV)),
        *(T, H, -0.5 * math.log2(K)),
        HAS_STATE=has_state,
        HAS_LAST=last[0] is not None,
        NORMALISER=normaliser,
        PRECISION=precision,
        **configuration(K, v_BTHV.shape[-1], precision),
    )
