"""How Mamba-3's kernels are launched, by shape; tiles are those of `kernels.ssd.options`."""

from __future__ import annotations

from statelab.kernels.ssd import options

PROGRAMS = 1024
"""Of the kernel that sums phases: some 8 for each multiprocessor of a large card."""


def launch_options(sizes: dict[str, int], precision: str, walks: bool = True) -> dict[str, int]:
    """As of `kernels.ssd.options`, but for a chunk alone in bf16 at widths up to 32: three such programs on a
    multiprocessor took 0.9 of the time of two on an H200 (B64 T256 H4)."""
    chosen = options.launch_options(sizes, precision)
    return chosen if walks or precision != "bf16" or not narrow(sizes) else chosen | {"maxnreg": 168}


def narrow(sizes: dict[str, int]) -> bool:
    """Whether tiles of states and of the head's width leave registers free."""
    return max(sizes["N"], sizes["W"]) <= 32


def split_time(sequences: int, blocks: int) -> tuple[int, int]:
    """Blocks of time that a program of the phases takes, and how many such programs a sequence has: not more than 8,
    since each sums all angles before its own."""
    parts = max(1, min(8, blocks, PROGRAMS // sequences))
    size = -(-blocks // parts)
    return size, -(-blocks // size)


def parts_itself(sizes: dict[str, int], ranks: int) -> bool:
    """Whether what a step sees of itself is computed apart from chunks' products: quicker where a step has one row and
    tiles are narrow, while with wide ones there are no registers for it."""
    return ranks == 1 and narrow(sizes)
