"""Tile sizes of `kernels.ssd.tiles`, and how its kernels are launched, by shape."""

from __future__ import annotations

import triton


def plan(time: int, width: int, states: int, precision: str) -> dict[str, int]:
    """Tile sizes by shape, chosen so that the usual ones compile for sm_90 without spilling registers.

    Chunks of 64 steps in bf16, which keep the kept states' traffic below that of the inputs; of 32 in precisions
    that split a float32 into several tiles; less where a sequence is shorter. All state channels, and up to 64 of a
    head's width, or 32 beside a wide state. No fewer of the width than there are state channels, up to 64: a kernel of
    64 channels beside a width of 32 read what is not its own, compiled by Triton 3.6 for an H200.
    """
    N = max(16, triton.next_power_of_2(states))
    W = min(64 if N <= 64 else 32, max(N, triton.next_power_of_2(width)))
    L = min(64 if precision == "bf16" else 32, max(16, triton.next_power_of_2(time)))
    return {"L": L, "N": N, "W": W}


def launch_options(sizes: dict[str, int], precision: str, walks: bool = True) -> dict[str, int]:
    """Warps by the widest and the second widest side of a tile; more where a tile is split into several. `walks`: of a
    kernel that goes along time.

    In bf16 by what an H200 took (B64 T256 H4): two loads on their way 0.9 of the time of one; of a chunk alone at a
    width of 32 four programs on a multiprocessor 0.85 of the time of three, and at 16 one warp 0.8 of that of four.
    """
    _, second, widest = sorted(sizes.values())
    warps = 8 if widest > 64 else 4 if second > 32 or widest > 32 else 2
    warps = warps if precision in ("bf16", "tf32") else min(8, 2 * warps)
    options = {"num_warps": warps, "num_stages": 1 if widest > 64 else 3 if precision == "bf16" else 2}
    if walks or precision != "bf16" or second > 32:
        return options
    return options | ({"num_warps": 1} if second == 16 else {"maxnreg": 128})
