"""The gradient of state weights from that of what they made: a sum over rows and steps of outer products.

Legend: B rows, T time, H heads, K head width, L lanes, S shares of the sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from statelab.kernels.dot import dot

STEPS = 32
"""Steps of a row that are one product."""


def width_of(size: int) -> int:
    """The tile that holds a width: a power of two that a product can have."""
    return max(16, int(triton.next_power_of_2(size)))


def blocks_of(rows: int, copies: int, width: int, most: int) -> tuple[int, int]:
    """Rows of a program of a recurrence of vectors, `most` at most, and its warps; `copies` is lanes × heads.

    Counted, not measured: a step takes about as long for 16 rows, the least that matrix units take, as for 32,
    so that 16 is right until the card's 132 multiprocessors hold four programs each. A warp takes 16 of W's
    columns: less would leave matrix units without work, more would put several products in a row.
    """
    block = min(most, 32 if copies * triton.cdiv(rows, 16) > 4 * 132 else 16)
    return block, max(1, width_of(width) // 16)


def time_product(
    state_BHK: Tensor,
    y_BTHK: Tensor,
    scale_BTHK: Tensor | None,
    d_BTHK: Tensor,
    lanes: int,
    precision: str,
) -> Tensor:
    """Σ_bt (h_{t-1} ⊙ scale_t)ᵀ d_t as `[L, H, K, K]` in float32, h_{-1} the state and h_t = y_t otherwise.

    Rows of a lane are summed; all tensors are contiguous. Programs sum shares, which are then summed in a
    fixed order: two calls give the same bits.
    """
    B, T, H, K = y_BTHK.shape
    items = B // lanes * triton.cdiv(T, STEPS)
    shares = min(items, triton.cdiv(4 * 132, lanes * H))
    sum_LHSKK = y_BTHK.new_empty((lanes, H, shares, K, K), dtype=torch.float32)
    scale = y_BTHK if scale_BTHK is None else scale_BTHK
    _kernel[lanes * H, shares](
        state_BHK, y_BTHK, scale, d_BTHK, sum_LHSKK, T, H, K, B // lanes, items,
        SCALED=scale_BTHK is not None, STEPS=STEPS, BLOCK_K=width_of(K), PRECISION=precision,
        num_warps=8 if K > 64 else 4 if K > 16 else 1, num_stages=2,
    )  # fmt: skip
    return sum_LHSKK.sum(2)


@triton.jit(do_not_specialize=["T", "rows", "items"])
def _kernel(  # type: ignore[no-untyped-def]
    state_ptr, y_ptr, scale_ptr, d_ptr, sum_ptr, T, H, K, rows, items,
    SCALED: tl.constexpr, STEPS: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    lane, head = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    share, shares = tl.program_id(1), tl.num_programs(1)
    k = tl.arange(0, BLOCK_K)
    chunks = tl.cdiv(T, STEPS)
    total = tl.zeros([BLOCK_K, BLOCK_K], tl.float32)
    for item in range(share, items, shares):
        b = lane * rows + item // chunks
        t = (item % chunks) * STEPS + tl.arange(0, STEPS)
        at = ((b * T + t) * H + head) * K
        # Transposed, so that a column is a step.
        inside = (k < K)[:, None] & (t < T)[None, :]
        before = at[None, :] - H * K + k[:, None]
        h = tl.load(y_ptr + before, inside & (t > 0)[None, :], 0.0).to(tl.float32)
        first = state_ptr + (b * H + head) * K + k[:, None] + 0 * t[None, :]
        h += tl.load(first, inside & (t == 0)[None, :], 0.0).to(tl.float32)
        if SCALED:
            h *= tl.load(scale_ptr + at[None, :] + k[:, None], inside, 0.0).to(tl.float32)
        d = tl.load(d_ptr + at[:, None] + k[None, :], (t < T)[:, None] & (k < K)[None, :], 0.0)
        total += dot(h, d.to(tl.float32), PRECISION)
    out = sum_ptr + ((lane * H + head) * shares + share) * K * K + k[:, None] * K + k[None, :]
    tl.store(out, total, (k < K)[:, None] & (k < K)[None, :])
