"""Tile sizes of `kernels.delta_rule.tiles`, and how its kernels are launched, by shape.

Legend: B rows, T time, J steps of a token, H heads, K key width, V value width.
"""

from __future__ import annotations

import triton
from torch import Tensor

INVERTED = {"bf16": "tf32", "tf32": "bf16x3"}
"""In what a chunk's system is inverted, where that is finer than other products: its levels build on each other."""
STEPS = 32
"""Steps of a chunk: with less the states at the starts of chunks outweigh the inputs, with more the inverse does."""


def plan(q_BTHK: Tensor, v_BTJHV: Tensor) -> dict[str, int]:
    """Tile sizes by shape: chunks of as many whole tokens as 32 steps hold, or 16 if that is all there is; all keys;
    up to 64 values, 32 beside wide keys, which then fit into registers, and no fewer than keys, as
    `kernels.ssd.options` says."""
    time, keys = q_BTHK.shape[1], q_BTHK.shape[3]
    factors, values = v_BTJHV.shape[2], v_BTJHV.shape[4]
    L = 16 if time * factors <= 16 else STEPS
    K = max(16, triton.next_power_of_2(keys))
    W = min(64 if K <= 64 else 32, max(K, triton.next_power_of_2(values)))
    M = max(16, triton.next_power_of_2(L // factors))
    return {"J": factors, "TOKENS": L // factors, "L": L, "M": M, "K": K, "W": W}


def launch_options(sizes: dict[str, int], precision: str, walks: bool = True) -> dict[str, int]:
    """Warps by the widest tile, with which the usual ones compile for sm_90 without spilling registers; more where
    operands take more than 16 bits. `walks`: of a kernel that goes along time.

    In bf16 by what an H200 took (B64 T256 H4): of a chunk alone half the warps take 0.7 of the time at a width of 32
    and 0.85 at 64, and two loads on their way 0.95 of one.
    """
    widest = max(sizes["K"], sizes["W"])
    warps = 8 if widest > 64 else 4 if widest > 32 else 2
    if precision == "bf16" and widest <= 64:
        return {"num_warps": warps if walks else warps // 2, "num_stages": 3}
    return {"num_warps": warps if precision == "bf16" else min(8, 2 * warps), "num_stages": 2}
