"""Triton helpers of Mamba-3's fused kernels: phases summed along time, and pairs of state channels turned by them.

Phases are fractions of a turn. As 32-bit integers they wrap round of themselves, so a sum over time is exact however
long, and the same in every order; an angle loses at most 2^−33 of a turn when it becomes one.

Legend: L rows (steps, or ranks of a step), N state width, its half the pairs of channels.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED, round_tf32
from statelab.kernels.steps import load_rows, store_rows

FULL_TURN = tl.constexpr(2 * math.pi)
RADIAN = tl.constexpr(2.0**32 / (2 * math.pi))
"""A radian as a 32-bit fraction of a turn."""
BEFORE = tl.constexpr(64)
"""Steps at once of those that only count for the phase in which a part of the time begins."""


@triton.jit
def place_rows(steps, RANKS: tl.constexpr, L: tl.constexpr):  # type: ignore[no-untyped-def]
    """Step and rank of each row of a chunk, and whether it is a true one; `steps` are left of the sequence."""
    row = tl.arange(0, L)
    step = row // RANKS
    return step, row % RANKS, (step < L // RANKS) & (step < steps)


@triton.jit
def as_fraction(angle):  # type: ignore[no-untyped-def]
    """Radians as 32-bit fractions of a turn. In float64: a step's error may come again at every step."""
    return tl.floor(angle.to(tl.float64) * RADIAN + 0.5).to(tl.int64).to(tl.int32)


@triton.jit
def turn_kernel(  # type: ignore[no-untyped-def]
    angle_ptr, phase_ptr, write_ptr, read_ptr,
    turns_ptr, last_ptr, turned_write_ptr, turned_read_ptr, before_ptr,
    time, heads, blocks, angle_b, angle_t, angle_h, write_b, write_t, write_r, write_h, read_b, read_t, read_r, read_h,
    RANKS: tl.constexpr, STATES: tl.constexpr, PAIRS: tl.constexpr, HAS_STATE: tl.constexpr,
    KEEP_LAST: tl.constexpr, PRECISION: tl.constexpr, L: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, parts of the time, of `blocks` blocks each): phases, in turns of at most ±1/2, and writes
    and reads turned by them, rounded.

    Also the last phase, in [0, 2π), and the last step's writes, not rounded. Angles that are not finite give phases
    that are not. A part sums the angles before it by itself.
    """
    sequence = tl.program_id(0).to(tl.int64)
    row, head = sequence // heads, sequence % heads
    angle_ptr += row * angle_b + head * angle_h
    write_ptr += row * write_b + head * write_h
    read_ptr += row * read_b + head * read_h
    before_ptr += (row * RANKS * heads + head) * STATES
    TOKENS: tl.constexpr = L // RANKS
    pair = tl.arange(0, N // 2)
    carried = tl.zeros([N // 2], tl.int32)
    if HAS_STATE:
        carried = as_fraction(tl.load(phase_ptr + sequence * PAIRS + pair, mask=pair < PAIRS, other=0.0))
    start = tl.cast(tl.program_id(1), tl.int64) * blocks * TOKENS
    for before in tl.range(0, start, BEFORE):
        step = before + tl.arange(0, BEFORE)
        angle = load_rows(angle_ptr, step * angle_t, step < start, PAIRS, N // 2)
        carried += tl.sum(as_fraction(angle), axis=0)
    for first in tl.range(start, tl.minimum(start + blocks * TOKENS, time), TOKENS, num_stages=2):
        step, rank, inside = place_rows(time - first, RANKS, L)
        gates = (row * time + first) * heads + head
        leads = inside & (rank == 0)
        angle = load_rows(angle_ptr + first * angle_t, step * angle_t, leads, PAIRS, N // 2)
        moved = as_fraction(angle)
        phase = carried[None, :] + tl.cumsum(moved, axis=0)
        carried += tl.sum(moved, axis=0)
        turns = phase.to(tl.float32) * 2.0**-32 + (angle - angle)
        store_rows(turns_ptr + gates * PAIRS, turns, step * heads * PAIRS, leads, PAIRS, N // 2)
        cos, sin = rotation(turns, PRECISION)
        line, lines = (step * RANKS + rank) * heads * STATES, ((gates - head) * RANKS + head) * STATES
        write = load_rows(write_ptr + first * write_t, step * write_t + rank * write_r, inside, STATES, N)
        write = rotate(write, cos, sin, L, N)
        store_rows(turned_write_ptr + lines, rounded(write, PRECISION), line, inside, STATES, N)
        if KEEP_LAST:
            last = inside & (first + step == time - 1)
            store_rows(before_ptr, write, rank * heads * STATES, last, STATES, N)
        read = load_rows(read_ptr + first * read_t, step * read_t + rank * read_r, inside, STATES, N)
        read = rotate(read, cos, sin, L, N)
        store_rows(turned_read_ptr + lines, rounded(read, PRECISION), line, inside, STATES, N)
    if start + blocks * TOKENS >= time:
        last_phase = (carried.to(tl.int64) & 0xFFFFFFFF).to(tl.float64) * (1 / RADIAN)
        tl.store(last_ptr + sequence * PAIRS + pair, last_phase.to(tl.float32), mask=pair < PAIRS)


@triton.jit
def rotation(turns, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """Cosines and sines of phases of at most half a turn: 1 and 0 of phase 0.

    Where products are made in 16 bits or tf32 they are the hardware's, off by 5e-7 at most.
    """
    if (PRECISION == "bf16" or PRECISION == "tf32") and not INTERPRETED:
        angle = turns * FULL_TURN
        cos = tl.inline_asm_elementwise(
            "cos.approx.ftz.f32 $0, $1;", "=f,f", [angle], dtype=tl.float32, is_pure=True, pack=1
        )
        sin = tl.inline_asm_elementwise(
            "sin.approx.ftz.f32 $0, $1;", "=f,f", [angle], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        cos, sin = series(turns)
    return cos, sin


@triton.jit
def series(turns):  # type: ignore[no-untyped-def]
    """Taylor series within an eighth of a turn: both to float32's rounding, without the general functions' stack."""
    quarter = tl.floor(4 * turns + 0.5)
    x = (turns - 0.25 * quarter) * FULL_TURN
    square = x * x
    sin = x + x * square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square * (1 / 362880))))
    cos = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square * (1 / 40320))))
    quarter = quarter.to(tl.int32)
    swapped = (quarter & 1) != 0
    turned_cos, turned_sin = tl.where(swapped, sin, cos), tl.where(swapped, cos, sin)
    return (
        tl.where(((quarter + 1) & 2) != 0, -turned_cos, turned_cos),
        tl.where((quarter & 2) != 0, -turned_sin, turned_sin),
    )


@triton.jit
def split_pairs(tile, L: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The even and the odd channels of a tile `[L, N]`."""
    return tl.split(tl.reshape(tile, [L, N // 2, 2]))


@triton.jit
def rotate(tile, cos, sin, L: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The pairs (2i, 2i + 1) of a tile `[L, N]` turned; back with −sin."""
    even, odd = split_pairs(tile, L, N)
    return tl.reshape(tl.join(even * cos - odd * sin, even * sin + odd * cos), [L, N])


@triton.jit
def pair_products(tile, dtile, L: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of turned rows and their gradients, by pairs, `[L, N / 2]`: inner products, and the gradients of their phases."""
    even, odd = split_pairs(tile, L, N)
    deven, dodd = split_pairs(dtile, L, N)
    return even * deven + odd * dodd, dodd * even - deven * odd


@triton.jit
def rounded(tile, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """What products see of a turned tile. Sums in which its products cancel must see the same."""
    if PRECISION == "bf16":
        tile = tile.to(tl.bfloat16).to(tl.float32)
    elif PRECISION == "tf32":
        tile = round_tf32(tile)
    return tile
