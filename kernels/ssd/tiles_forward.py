"""The forward kernel of `kernels.ssd.tiles`. Legend: L steps of a chunk, N state width, W a block of head width."""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot, turned
from statelab.kernels.steps import decay_from_to, from_log, load_decays, load_steps, store_steps


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, decay_ptr, write_ptr, read_ptr, state_ptr, y_ptr, last_ptr, starts_ptr,
    time, heads, heads_per_group, chunks,
    x_b, x_t, x_h, decay_b, decay_t, decay_h, write_b, write_t, write_g, read_b, read_t, read_g,
    WIDTH: tl.constexpr, STATES: tl.constexpr, HAS_STATE: tl.constexpr, KEEP: tl.constexpr,
    PRECISION: tl.constexpr, L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of head width): walks over the chunks with its block of the state on chip."""
    sequence, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * W
    row, head = sequence // heads, sequence % heads
    group = head // heads_per_group
    width = WIDTH - start
    x_ptr += row * x_b + head * x_h + start
    decay_ptr += row * decay_b + head * decay_h
    write_ptr += row * write_b + group * write_g
    read_ptr += row * read_b + group * read_g
    y_ptr += (row * time * heads + head) * WIDTH + start
    # The state is [P, N] in memory and [N, W] here, so that reads and writes are products from the left.
    state_at = (sequence * WIDTH + start + tl.arange(0, W)[None, :]) * STATES + tl.arange(0, N)[:, None]
    state_inside = (tl.arange(0, N)[:, None] < STATES) & (tl.arange(0, W)[None, :] < width)
    starts_ptr += sequence * chunks * STATES * WIDTH + start
    step = tl.arange(0, L)
    seen = step[:, None] >= step[None, :]

    state = tl.zeros([N, W], tl.float32)
    if HAS_STATE:
        state = tl.load(state_ptr + state_at, mask=state_inside, other=0.0)
    for c in range(tl.cast(chunks, tl.int64)):
        first = c * L
        steps = time - first
        if KEEP:
            store_steps(starts_ptr + c * STATES * WIDTH, state, WIDTH, STATES, width, N, W)
        cum, total = load_decays(decay_ptr + first * decay_t, decay_t, steps, L)
        x = load_steps(x_ptr + first * x_t, x_t, steps, width, L, W)
        write = load_steps(write_ptr + first * write_t, write_t, steps, STATES, L, N)
        read = load_steps(read_ptr + first * read_t, read_t, steps, STATES, L, N)
        mix = dot(read, turned(write, PRECISION), PRECISION) * decay_from_to(cum[None, :], cum[:, None], seen)
        y = dot(mix, x, PRECISION) + from_log(cum)[:, None] * dot(read, state, PRECISION)
        store_steps(y_ptr + first * heads * WIDTH, y, heads * WIDTH, steps, width, L, W)
        added = dot(turned(write, PRECISION), from_log(total - cum)[:, None] * x, PRECISION)
        state = from_log(total) * state + added
    tl.store(last_ptr + state_at, state, mask=state_inside)
