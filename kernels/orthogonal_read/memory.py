"""Loading and storing what `tiles` computes on.

*Fragment order* is a matrix in memory as it lies in registers, tile by tile, so that what a thread loads at once is
its own: within a tile [row half, row % 8, pair of columns % 4, column half, column % 2] for float32, 4 numbers at
once, and [row % 8, pair of columns % 4, column half, row half, column % 2] for 16 bits, 8 at once. The latter is the
order of registers in which a matrix unit takes a left operand; for the right one of L Rᵀ the halves change places. In
another order they are copied for each product anew.

A matrix or a vector is one load or one store, padded to a power of two and split in registers: Triton's compiler (its
pass Coalesce) goes through all that a kernel computes once for each of them, and by its square. With one a tile,
compiling the cubic for width 48 took three times as long, and the quintic in bf16x3 ten minutes instead of one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


LEFT, RIGHT = tl.constexpr("left"), tl.constexpr("right")
"""The side of a product on which an operand of 16 bits is to stand."""


@triton.constexpr_function
def _padded(count):
    """The next power of two."""
    return 1 << (count - 1).bit_length()


@triton.constexpr_function
def _halvings(count):
    return [2] * (count.bit_length() - 1)


@triton.jit
def _apart(x, COUNT: tl.constexpr):
    """`x` [16, …, COUNT] as a tuple of COUNT along its last axis."""
    out = (tl.reshape(x, x.shape[:-1] + _halvings(COUNT)),)
    for _ in tl.static_range(len(_halvings(COUNT))):
        even, odd = (), ()
        for part in tl.static_range(len(out)):
            first, second = tl.split(out[part])
            even, odd = even + (first,), odd + (second,)
        out = even + odd
    return out


@triton.jit
def _together(x, COUNT: tl.constexpr):
    """The first COUNT of a tuple, a power of two, on axes of 2 behind the others; missing ones are repeated."""
    out = (x[0],)
    for part in tl.static_range(1, COUNT):
        out = out + (x[part if part < len(x) else 0],)
    for _ in tl.static_range(len(_halvings(COUNT))):
        joined = ()
        for part in tl.static_range(len(out) // 2):
            joined = joined + (tl.join(out[part], out[len(out) // 2 + part]),)
        out = joined
    return out[0]


@triton.jit
def load_vector(pointer, width, N: tl.constexpr):
    """N pieces of 16 of a dense vector, as float32, zeros from `width` on."""
    COUNT: tl.constexpr = _padded(N)
    at = tl.arange(0, COUNT * 16)
    line = tl.load(pointer + at, mask=at < width, other=0.0).to(tl.float32)
    pieces = _apart(tl.permute(tl.reshape(line, [COUNT, 16]), (1, 0)), COUNT)
    out = ()
    for i in tl.static_range(N):
        out = out + (pieces[i],)
    return out


@triton.jit
def store_vector(pointer, vector, width, N: tl.constexpr):
    """Write a vector's first `width` numbers."""
    COUNT: tl.constexpr = _padded(N)
    line = tl.reshape(_together(vector, COUNT), [16, COUNT])
    at = tl.arange(0, COUNT * 16)
    line = tl.reshape(tl.permute(line, (1, 0)), [COUNT * 16])
    tl.store(pointer + at, line.to(pointer.dtype.element_ty), mask=at < width)


@triton.constexpr_function
def _group(count):
    """How many of `count` tiles are moved at once."""
    return min(16, count)  # 128 registers of float32


@triton.jit
def _place(pointer, TILES: tl.constexpr, PADDED: tl.constexpr):
    """Where a group lies, and whether a tile is one of it. A thread takes 4 float32 or 8 others at once; were the two
    alike in shape, Triton would give both 8."""
    if pointer.dtype.element_ty == tl.float32:
        row = tl.arange(0, PADDED * 2)[:, None]
        place = pointer + (row * 128 + tl.arange(0, 128)[None, :])
        inside = tl.broadcast_to(row < TILES * 2, place.shape)
    else:
        at = tl.arange(0, PADDED * 256)
        place = pointer + at
        inside = at < TILES * 256
    return place, inside


@triton.jit
def load_fragments(pointer, COUNT: tl.constexpr, SIDE: tl.constexpr = LEFT):
    """COUNT tiles that lie in fragment order, in the type that they lie in."""
    TILES: tl.constexpr = _group(COUNT)
    PADDED: tl.constexpr = _padded(TILES)
    place, inside = _place(pointer, TILES, PADDED)
    line = tl.load(place, mask=inside)
    # [row half, row, column half, column pair, parity, tile]
    if pointer.dtype.element_ty == tl.float32:
        blocks = tl.permute(tl.reshape(line, [PADDED, 2, 8, 4, 2, 2]), (1, 2, 4, 3, 5, 0))
    else:
        if INTERPRETED:
            line = line.to(tl.float32)
        line = tl.reshape(line, [PADDED, 8, 4, 2, 2, 2])
        blocks = tl.permute(line, (4, 1, 3, 2, 5, 0) if SIDE == LEFT else (3, 1, 4, 2, 5, 0))
    pieces = _apart(tl.reshape(blocks, [16, 16, PADDED]), PADDED)
    out = ()
    for tile in tl.static_range(TILES):
        out = out + (pieces[tile],)
    if COUNT > TILES:
        out = out + load_fragments(pointer + TILES * 256, COUNT - TILES, SIDE)
    return out


@triton.jit
def store_fragments(pointer, x, SIDE: tl.constexpr = LEFT):
    """Write tiles in fragment order."""
    TILES: tl.constexpr = _group(len(x))
    PADDED: tl.constexpr = _padded(TILES)
    place, inside = _place(pointer, TILES, PADDED)
    blocks = tl.reshape(_together(x, PADDED), [2, 8, 2, 4, 2, PADDED])
    if pointer.dtype.element_ty == tl.float32:
        line = tl.permute(blocks, (5, 0, 1, 3, 2, 4))
    else:
        line = tl.permute(blocks, (5, 1, 3, 2, 0, 4) if SIDE == LEFT else (5, 1, 3, 0, 2, 4))
    tl.store(place, tl.reshape(line, place.shape), mask=inside)
    if len(x) > TILES:
        rest = ()
        for tile in tl.static_range(TILES, len(x)):
            rest = rest + (x[tile],)
        store_fragments(pointer + TILES * 256, rest, SIDE)
