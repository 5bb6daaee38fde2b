"""The forward kernel of `kernels.mamba3.tiles`, and what it shares with the backward ones.

Legend: L rows of a chunk, steps · ranks, N state width, W a block of head width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot, turned
from statelab.kernels.mamba3.phases import place_rows
from statelab.kernels.steps import (
    as_logs,
    decay_from_to,
    from_log,
    load_rows,
    store_rows,
    store_steps,
)


@triton.jit
def load_row_decays(pointer, offset, first):  # type: ignore[no-untyped-def]
    """Log decays summed up to each row, `[L]`, and over all: of the ranks of a step only the `first` decays."""
    decay = as_logs(tl.load(pointer + offset, mask=first, other=0.0).to(tl.float32))
    return tl.cumsum(decay, axis=0), tl.sum(decay, axis=0)


@triton.jit
def load_row_scales(  # type: ignore[no-untyped-def]
    step_ptr, weight_ptr, base, offset, heads, steps, inside, HAS_WEIGHT: tl.constexpr
):
    """λΔ, by which a row's own step sees what it writes, and λΔ + (1 − λ')Δ', by which later ones do, `[L]`."""
    if HAS_WEIGHT:
        # Of each row's step and of the one after, which there is none of behind the last.
        after = tl.arange(0, 2)[:, None]
        offset = offset[None, :] + after * heads
        inside = inside[None, :] & (offset < steps * heads)
        step = tl.load(step_ptr + base + offset, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + base + offset, mask=inside, other=0.0).to(tl.float32)
        own = tl.sum(tl.where(after == 0, weight * step, 0.0), axis=0)
        scale = tl.sum(tl.where(after == 0, weight, 1 - weight) * step, axis=0)
    else:
        own = tl.load(step_ptr + base + offset, mask=inside, other=0.0).to(tl.float32)
        scale = own
    return own, scale


@triton.jit
def weighted(product, decay, scale, own, same, APART: tl.constexpr):  # type: ignore[no-untyped-def]
    """Products of two rows by what the later sees of the earlier, and rows of one step of each other. `APART`: what a
    row sees of itself is left out."""
    return product * (decay * scale if APART else tl.where(same, own, decay * scale))


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, decay_ptr, step_ptr, weight_ptr, write_ptr, read_ptr, state_ptr,
    y_ptr, x_before_ptr, last_ptr, starts_ptr,
    time, heads, chunks,
    x_b, x_t, x_r, x_h, write_b, write_t, write_r, write_h, read_b, read_t, read_r, read_h,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, STATES: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_STATE: tl.constexpr, KEEP: tl.constexpr, APART: tl.constexpr,
    PRECISION: tl.constexpr, L: tl.constexpr, N: tl.constexpr, W: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of head width): walks over the chunks with its block of the state on chip."""
    sequence, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * W
    row, head = sequence // heads, sequence % heads
    width = WIDTH - start
    x_ptr += row * x_b + head * x_h + start
    write_ptr += row * write_b + head * write_h
    read_ptr += row * read_b + head * read_h
    # The state is [P, N] in memory and [N, W] here, so that reads and writes are products from the left.
    state_at = (sequence * WIDTH + start + tl.arange(0, W)[None, :]) * STATES + tl.arange(0, N)[:, None]
    state_inside = (tl.arange(0, N)[:, None] < STATES) & (tl.arange(0, W)[None, :] < width)
    starts_ptr += sequence * chunks * STATES * WIDTH + start

    state = tl.zeros([N, W], tl.float32)
    if HAS_STATE:
        state = tl.load(state_ptr + state_at, mask=state_inside, other=0.0)
    for c in range(tl.cast(chunks, tl.int64)):
        first = c * (L // RANKS)
        step, rank, inside = place_rows(time - first, RANKS, L)
        if KEEP:
            store_steps(starts_ptr + c * STATES * WIDTH, state, WIDTH, STATES, width, N, W)
        gate, gates = step * heads, (row * time + first) * heads + head
        cum, total = load_row_decays(decay_ptr + gates, gate, inside & (rank == 0))
        own, scale = load_row_scales(
            step_ptr, weight_ptr, gates, gate, heads, time - first, inside, HAS_WEIGHT
        )
        x = load_rows(x_ptr + first * x_t, step * x_t + rank * x_r, inside, width, W)
        write = load_rows(write_ptr + first * write_t, step * write_t + rank * write_r, inside, STATES, N)
        read = load_rows(read_ptr + first * read_t, step * read_t + rank * read_r, inside, STATES, N)
        decay = decay_from_to(cum[None, :], cum[:, None], step[:, None] > step[None, :])
        same = step[:, None] == step[None, :]
        mix = dot(read, turned(write, PRECISION), PRECISION)
        mix = weighted(mix, decay, scale[None, :], own[:, None], same, APART)
        y = dot(mix, x, PRECISION) + from_log(cum)[:, None] * dot(read, state, PRECISION)
        if APART:
            y += (own * tl.sum(read.to(tl.float32) * write, axis=1))[:, None] * x
        y_at = ((row * time + first) * RANKS * heads + head) * WIDTH + start
        store_rows(y_ptr + y_at, y, (step * RANKS + rank) * heads * WIDTH, inside, width, W)
        added = dot(turned(write, PRECISION), (from_log(total - cum) * scale)[:, None] * x, PRECISION)
        state = from_log(total) * state + added
    tl.store(last_ptr + state_at, state, mask=state_inside)
    if HAS_WEIGHT:
        rank = tl.arange(0, R)
        x = load_rows(x_ptr + tl.cast(time - 1, tl.int64) * x_t, rank * x_r, rank < RANKS, width, W)
        x_before_ptr += (row * RANKS * heads + head) * WIDTH + start
        store_rows(x_before_ptr, x, rank * heads * WIDTH, rank < RANKS, width, W)
