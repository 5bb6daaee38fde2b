"""Loading and storing what `tiles` computes on.

*Fragment order* is a matrix in memory as it lies in registers, tile by tile, so that what a thread loads at once is
its own: within a tile [row half, row % 8, pair of columns % 4, column half, column % 2] for float32, 4 numbers at
once, and [row % 8, pair of columns % 4, row half, column half, column % 2] for bfloat16, 8 at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


@triton.jit
def load_vector(pointer, width, N: tl.constexpr):
    """N pieces of 16 of a dense vector, as float32, zeros from `width` on."""
    out = ()
    for i in tl.static_range(N):
        at = i * 16 + tl.arange(0, 16)
        out = out + (tl.load(pointer + at, mask=at < width, other=0.0).to(tl.float32),)
    return out


@triton.jit
def store_vector(pointer, vector, width, N: tl.constexpr):
    """Write a vector's first `width` numbers."""
    for i in tl.static_range(N):
        at = i * 16 + tl.arange(0, 16)
        tl.store(pointer + at, vector[i].to(pointer.dtype.element_ty), mask=at < width)


@triton.jit
def load_fragments(pointer, COUNT: tl.constexpr):
    """COUNT tiles that lie in fragment order, as float32 or bfloat16."""
    out = ()
    for tile in tl.static_range(COUNT):
        place = pointer + tile * 256
        if pointer.dtype.element_ty == tl.float32:
            # Two halves of rows, each [row, column pair, column half, parity].
            upper = tl.reshape(tl.load(place + tl.arange(0, 128)), [8, 4, 2, 2])
            lower = tl.reshape(tl.load(place + 128 + tl.arange(0, 128)), [8, 4, 2, 2])
            blocks = tl.permute(tl.join(upper, lower), [4, 0, 2, 1, 3])
        else:
            line = tl.load(place + tl.arange(0, 256))
            if INTERPRETED:
                line = line.to(tl.float32)
            blocks = tl.permute(tl.reshape(line, [8, 4, 2, 2, 2]), [2, 0, 3, 1, 4])
        # [row half, row, column half, column pair, parity]
        out = out + (tl.reshape(blocks, [16, 16]),)
    return out


@triton.jit
def store_fragments(pointer, x):
    """Write tiles in fragment order."""
    for tile in tl.static_range(len(x)):
        place = pointer + tile * 256
        blocks = tl.reshape(x[tile], [2, 8, 2, 4, 2])
        if pointer.dtype.element_ty == tl.float32:
            upper, lower = tl.split(tl.permute(blocks, [1, 3, 2, 4, 0]))
            tl.store(place + tl.arange(0, 128), tl.reshape(upper, [128]))
            tl.store(place + 128 + tl.arange(0, 128), tl.reshape(lower, [128]))
        else:
            tl.store(place + tl.arange(0, 256), tl.reshape(tl.permute(blocks, [1, 3, 0, 2, 4]), [256]))
