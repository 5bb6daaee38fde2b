"""The backward kernels of `kernels.ssd.tiles`. Legend: L steps of a chunk, N state width, W a block of head width.

With D_ij = e^{G_i − G_j} for i ≥ j, S the state at a chunk's start and dS the gradient of that at its end:
    dC = (D ∘ dy xᵀ) B + e^G dy Sᵀ,    dB = (D ∘ dy xᵀ)ᵀ C + e^{G_L − G} x dSᵀ,
    dx = (D ∘ C Bᵀ)ᵀ dy + e^{G_L − G} B dS,    dS ← e^{G_L} dS + (e^G C)ᵀ dy.
Only the last goes from chunk to chunk: `ends_kernel` walks back over time for it alone, then `gradients_kernel` has a
program for each chunk. G_i is met in step i's reads with a plus and in its writes with a minus, so a log decay's
gradient is a sum of C·dC − B·dB over the steps from it on. What reaches the chunk's end passes it from all steps
before: summed from that side, nothing large is cancelled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot, turned
from statelab.kernels.steps import decay_from_to, from_log, load_decays, load_steps, store_each, store_steps


@triton.jit
def ends_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, decay_ptr, read_ptr, ends_ptr, dstate_ptr,
    time, heads, heads_per_group, chunks,
    dy_b, dy_t, dy_h, decay_b, decay_t, decay_h, read_b, read_t, read_g,
    WIDTH: tl.constexpr, STATES: tl.constexpr, HAS_DLAST: tl.constexpr, HAS_STATE: tl.constexpr,
    PRECISION: tl.constexpr, L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of head width): the gradient of the state at the end of every chunk."""
    sequence, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * W
    row, head = sequence // heads, sequence % heads
    width = WIDTH - start
    dy_ptr += row * dy_b + head * dy_h + start
    decay_ptr += row * decay_b + head * decay_h
    read_ptr += row * read_b + head // heads_per_group * read_g
    ends_ptr += sequence * chunks * STATES * WIDTH + start
    state_at = (sequence * WIDTH + start + tl.arange(0, W)[None, :]) * STATES + tl.arange(0, N)[:, None]
    state_inside = (tl.arange(0, N)[:, None] < STATES) & (tl.arange(0, W)[None, :] < width)

    dstate = tl.zeros([N, W], tl.float32)
    if HAS_DLAST:
        dstate = tl.load(dlast_ptr + state_at, mask=state_inside, other=0.0)
    for back in range(tl.cast(chunks, tl.int64)):
        c = chunks - 1 - back
        first = c * L
        steps = time - first
        store_steps(ends_ptr + c * STATES * WIDTH, dstate, WIDTH, STATES, width, N, W)
        cum, total = load_decays(decay_ptr + first * decay_t, decay_t, steps, L)
        dy = load_steps(dy_ptr + first * dy_t, dy_t, steps, width, L, W)
        read = load_steps(read_ptr + first * read_t, read_t, steps, STATES, L, N)
        dstate = from_log(total) * dstate + dot(
            turned(read, PRECISION), from_log(cum)[:, None] * dy, PRECISION
        )
    if HAS_STATE:
        tl.store(dstate_ptr + state_at, dstate, mask=state_inside)


@triton.jit
def gradients_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, x_ptr, decay_ptr, write_ptr, read_ptr, starts_ptr, ends_ptr,
    dx_ptr, ddecay_ptr, dwrite_ptr, dread_ptr,
    time, heads, heads_per_group, chunks, blocks,
    dy_b, dy_t, dy_h, x_b, x_t, x_h, decay_b, decay_t, decay_h,
    write_b, write_t, write_g, read_b, read_t, read_g,
    WIDTH: tl.constexpr, STATES: tl.constexpr, PRECISION: tl.constexpr,
    L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads · chunks, blocks of head width).

    What blocks and the heads of a group add to one gradient is written apart, one part each.
    """
    place, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence, first = place // chunks, place % chunks * L
    row, head = sequence // heads, sequence % heads
    group, start = head // heads_per_group, block * W
    steps, width = time - first, WIDTH - start
    at = (row * time + first) * heads + head
    part, part_t = at * blocks + block, heads * blocks
    step = tl.arange(0, L)
    # Each product of two steps is made once as [i, j] and once as [j, i]: a transposed sum of products, rounded
    # to 16 bits, is not safe as the left side of another on Hopper.
    seen, seen_t = step[:, None] >= step[None, :], step[:, None] <= step[None, :]

    cum, total = load_decays(decay_ptr + row * decay_b + first * decay_t + head * decay_h, decay_t, steps, L)
    from_start, to_end = from_log(cum)[:, None], from_log(total - cum)[:, None]
    x = load_steps(x_ptr + row * x_b + first * x_t + head * x_h + start, x_t, steps, width, L, W)
    dy = load_steps(dy_ptr + row * dy_b + first * dy_t + head * dy_h + start, dy_t, steps, width, L, W)
    write_ptr += row * write_b + first * write_t + group * write_g
    write = load_steps(write_ptr, write_t, steps, STATES, L, N)
    read_ptr += row * read_b + first * read_t + group * read_g
    read = load_steps(read_ptr, read_t, steps, STATES, L, N)
    held = load_steps(starts_ptr + place * STATES * WIDTH + start, WIDTH, STATES, width, N, W)

    dmix = dot(dy, turned(x, PRECISION), PRECISION) * decay_from_to(cum[None, :], cum[:, None], seen)
    dread = dot(dmix, write, PRECISION) + from_start * dot(dy, turned(held, PRECISION), PRECISION)
    store_steps(dread_ptr + part * STATES, dread, part_t * STATES, steps, STATES, L, N)
    own = tl.sum(read * dread, axis=1)

    dend = load_steps(ends_ptr + place * STATES * WIDTH + start, WIDTH, STATES, width, N, W)
    passed = from_log(total) * tl.sum(tl.sum(held.to(tl.float32) * dend, axis=1), axis=0)
    decay_back = decay_from_to(cum[:, None], cum[None, :], seen_t)
    dwrite = dot(dot(x, turned(dy, PRECISION), PRECISION) * decay_back, read, PRECISION)
    own -= tl.sum(write * dwrite, axis=1)
    dwrite_end = to_end * dot(x, turned(dend, PRECISION), PRECISION)
    passing = tl.sum(write * dwrite_end, axis=1)
    store_steps(dwrite_ptr + part * STATES, dwrite + dwrite_end, part_t * STATES, steps, STATES, L, N)
    ddecay = tl.cumsum(own, axis=0, reverse=True) + (tl.cumsum(passing, axis=0) - passing) + passed
    store_each(ddecay_ptr + part, ddecay, part_t, steps, L)

    mix_back = dot(write, turned(read, PRECISION), PRECISION) * decay_back
    dx = dot(mix_back, dy, PRECISION) + to_end * dot(write, dend, PRECISION)
    store_steps(dx_ptr + at * WIDTH + start, dx, heads * WIDTH, steps, width, L, W)
