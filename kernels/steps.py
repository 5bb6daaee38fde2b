"""Triton helpers of the chunked kernels: tiles of steps, and decays between the steps of a chunk.

A tile has one row a step, `[L, W]`, in the type that it has in memory: what only products take need not be made wider
first. Rows and columns past the true ones are read as zeros and never written. Logs of decays are to the base 2, which
is what the hardware raises to a power.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED

LEAST_LOG_DECAY = tl.constexpr(-120.0)
"""e^−120 is 0 in float32: below it nothing changes but the rounding of the sums that a decay is part of."""
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(pointer, offset, inside, width, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tile whose rows are at `pointer + offset`, where `inside`, with their last axis dense."""
    column = tl.arange(0, W)[None, :]
    mask = inside[:, None] & (column < width)
    return tl.load(pointer + offset[:, None] + column, mask=mask, other=0.0)


@triton.jit
def store_rows(pointer, tile, offset, inside, width, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the true part of a tile, in the type that `pointer` points to."""
    column = tl.arange(0, W)[None, :]
    mask = inside[:, None] & (column < width)
    tl.store(pointer + offset[:, None] + column, tile.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def load_steps(pointer, stride, steps, width, L: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tile of L rows from `pointer`, `stride` apart; `steps` and `width` count its true rows and columns."""
    row = tl.arange(0, L)
    return load_rows(pointer, row * stride, row < steps, width, W)


@triton.jit
def store_steps(pointer, tile, stride, steps, width, L: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the true part of a tile of L rows, `stride` apart."""
    row = tl.arange(0, L)
    store_rows(pointer, tile, row * stride, row < steps, width, W)


@triton.jit
def load_each(pointer, stride, steps, L: tl.constexpr):  # type: ignore[no-untyped-def]
    """One number a step, `[L]`."""
    row = tl.arange(0, L)
    return tl.load(pointer + row * stride, mask=row < steps, other=0.0).to(tl.float32)


@triton.jit
def store_each(pointer, numbers, stride, steps, L: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write one number a step, in the type that `pointer` points to."""
    row = tl.arange(0, L)
    tl.store(pointer + row * stride, numbers.to(pointer.dtype.element_ty), mask=row < steps)


@triton.jit
def as_logs(decay):  # type: ignore[no-untyped-def]
    """Logs of decays to the base 2, from natural ones."""
    return tl.maximum(decay, LEAST_LOG_DECAY) * LOG2E


@triton.jit
def from_log(log):  # type: ignore[no-untyped-def]
    """2^log, 0 below 2^−126: one instruction where a general exponential takes six."""
    if INTERPRETED:
        power = tl.exp2(log)
    else:
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [log], dtype=tl.float32, is_pure=True, pack=1
        )
    return power


@triton.jit
def load_decays(pointer, stride, steps, L: tl.constexpr):  # type: ignore[no-untyped-def]
    """Log decays summed up to each step of a chunk, `[L]`, and over all of it; steps past the end do not decay."""
    decay = as_logs(load_each(pointer, stride, steps, L))
    return tl.cumsum(decay, axis=0), tl.sum(decay, axis=0)


@triton.jit
def decay_from_to(source, target, seen):  # type: ignore[no-untyped-def]
    """The decay from `source` to `target`, log sums that broadcast, where `seen`; else 0."""
    # Masked before the power: the decay from a later step may overflow.
    return from_log(tl.where(seen, target - source, -float("inf")))
