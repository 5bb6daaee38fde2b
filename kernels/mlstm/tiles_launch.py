"""The mLSTM with a program for each chunk: sizes and launches of the five kernels.

What a chunk reads and writes is parallel over time; only memories, and their gradients, go from chunk to chunk.
Legend: B rows, T time, H heads, K key width, V value width, N chunks, L steps of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from statelab.kernels.mlstm.tiles_backward import reads_kernel, writes_kernel
from statelab.kernels.mlstm.tiles_forward import forward_kernel
from statelab.kernels.mlstm.tiles_states import states_gradient_kernel, states_kernel

LENGTH = 64
"""L: rows of a warp group's product, which takes its right operand from shared memory and so leaves registers free."""


def configuration(K: int, V: int) -> dict[str, int]:
    """Padded widths, the same for keys and values, and one warp group for each 64 of them.

    Chosen by what compiles for sm_90 without spills: widths up to 64 with bf16 operands, up to 32 with tf32's and
    bf16x6's but for a few words. At 64 bf16x6 spills up to 350 bytes a thread, at 128 a kilobyte. Square, since 64
    keys beside 16 values, compiled by Triton 3.6, read memory that is not theirs on an H200.
    """
    width = max(16, triton.next_power_of_2(max(K, V)))
    return {"K": K, "V": V, "BK": width, "BV": width, "L": LENGTH, "num_warps": 8 if width > 64 else 4}


def _blocks(widths: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Blocks of 32 values into which the kernels that walk over time cut C, and the widths of a block."""
    size = min(widths["BV"], 32)
    return triton.cdiv(widths["V"], size), {**widths, "BV": size}


def kept_like(q_BTHK: Tensor, v_BTHV: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised C `[B, H, N, K, V]`, n `[B, H, N, K]`, m `[B, H, N]`, and nothing of n·q."""
    B, T, H, K = q_BTHK.shape
    V, N = v_BTHV.shape[-1], triton.cdiv(T, LENGTH)
    C_BHNKV, n_BHNK, m_BHN, nq_BH0 = (
        v_BTHV.new_empty(shape, dtype=torch.float32)
        for shape in ((B, H, N, K, V), (B, H, N, K), (B, H, N), (B, H, 0))
    )
    return C_BHNKV, n_BHNK, m_BHN, nq_BH0


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
    h_BTHV, *states = outputs[:7]
    strides = [tensor.stride()[:3] for tensor in inputs]
    sizes, widths = (T, H, -0.5 * math.log2(K)), configuration(K, v_BTHV.shape[-1])
    blocks, block = _blocks(widths)
    states_kernel[(B * H, blocks)](
        *(*inputs[1:], *start, *states, *strides[1:], *sizes),
        HAS_STATE=start[0] is not None,
        PRECISION=precision,
        **block,
    )
    kept = states[3:]
    forward_kernel[(kept[2].numel(),)](
        *(*inputs, *kept, h_BTHV, *strides, *sizes),
        NORMALISER=normaliser,
        PRECISION=precision,
        **widths,
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
    q_BTHK, _, v_BTHV, *gates = inputs
    kept = kept[:3]
    B, T, H, K = q_BTHK.shape
    kept_gradients = [torch.empty_like(part) for part in kept]
    of_steps = q_BTHK.new_empty((B, H, 4, T), dtype=torch.float32)
    strides = [tensor.stride()[:3] for tensor in (*inputs, dh_BTHV)]
    scale = -0.5 * math.log2(K)
    widths = configuration(K, v_BTHV.shape[-1])
    options = {"NORMALISER": normaliser, "PRECISION": precision}
    blocks, block = _blocks(widths)
    each = (kept[2].numel(),)
    reads_kernel[each](
        *(*inputs, *kept, dh_BTHV, gradients[0], of_steps, *strides, T, H, scale), **options, **widths
    )
    states_gradient_kernel[(B * H, blocks)](
        *(q_BTHK, *gates, kept[2], dh_BTHV, *last, of_steps),
        *(*kept_gradients, *gradients[5:], strides[0], *strides[3:], T, H),
        HAS_STATE=has_state,
        HAS_LAST=last[0] is not None,
        **options,
        **block,
    )
    writes_kernel[each](
        *(*inputs, *kept, dh_BTHV, of_steps, *kept_gradients, *gradients[1:5], *strides, T, H, scale),
        **options,
        **widths,
    )
