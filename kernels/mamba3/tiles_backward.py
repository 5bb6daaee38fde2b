"""The backward kernels of `kernels.mamba3.tiles`.

Legend: L rows of a chunk, steps · ranks, N state width, W a block of head width.

`kernels.ssd.tiles_backward` has the gradients of what is read, written and decays; here D_ij carries the scale of
row j, or what its own step sees of it, and writes and reads are turned. A phase is met in reads and in writes with
opposite signs, as a log decay is: turning both turns nothing. So an angle's gradient, that of all phases from its
step on, is likewise what passes its step: a sum over the chunk, and what passes all of it. No sum over all of time
is left.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.mamba3.phases import pair_products, place_rows, rotate, rotation
from statelab.kernels.mamba3.tiles_forward import load_row_decays, load_row_scales
from statelab.kernels.steps import decay_from_to, load_rows, load_steps, store_rows, store_steps


@triton.jit
def ends_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, dlast_ptr, decay_ptr, read_ptr, ends_ptr, dstate_ptr,
    time, heads, chunks, dy_b, dy_t, dy_r, dy_h, read_b, read_t, read_r, read_h,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, STATES: tl.constexpr,
    HAS_DLAST: tl.constexpr, HAS_STATE: tl.constexpr, PRECISION: tl.constexpr,
    L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads, blocks of head width): the gradient of the state at the end of every chunk."""
    sequence, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * W
    row, head = sequence // heads, sequence % heads
    width = WIDTH - start
    dy_ptr += row * dy_b + head * dy_h + start
    read_ptr += row * read_b + head * read_h
    ends_ptr += sequence * chunks * STATES * WIDTH + start
    state_at = (sequence * WIDTH + start + tl.arange(0, W)[None, :]) * STATES + tl.arange(0, N)[:, None]
    state_inside = (tl.arange(0, N)[:, None] < STATES) & (tl.arange(0, W)[None, :] < width)

    dstate = tl.zeros([N, W], tl.float32)
    if HAS_DLAST:
        dstate = tl.load(dlast_ptr + state_at, mask=state_inside, other=0.0)
    for back in range(tl.cast(chunks, tl.int64)):
        c = chunks - 1 - back
        first = c * (L // RANKS)
        step, rank, inside = place_rows(time - first, RANKS, L)
        store_steps(ends_ptr + c * STATES * WIDTH, dstate, WIDTH, STATES, width, N, W)
        gates = (row * time + first) * heads + head
        cum, total = load_row_decays(decay_ptr + gates, step * heads, inside & (rank == 0))
        dy = load_rows(dy_ptr + first * dy_t, step * dy_t + rank * dy_r, inside, width, W)
        read = load_rows(read_ptr + first * read_t, step * read_t + rank * read_r, inside, STATES, N)
        dstate = tl.exp(total) * dstate + dot(tl.trans(read), tl.exp(cum)[:, None] * dy, PRECISION)
    if HAS_STATE:
        tl.store(dstate_ptr + state_at, dstate, mask=state_inside)


@triton.jit
def gradients_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, x_ptr, decay_ptr, step_ptr, weight_ptr, turns_ptr, write_ptr, read_ptr, starts_ptr, ends_ptr,
    dx_ptr, down_ptr, dscale_ptr, ddecay_ptr, dangle_ptr, dwrite_ptr, dread_ptr,
    time, heads, chunks, blocks,
    dy_b, dy_t, dy_r, dy_h, x_b, x_t, x_r, x_h,
    write_b, write_t, write_r, write_h, read_b, read_t, read_r, read_h,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, STATES: tl.constexpr, PAIRS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, PRECISION: tl.constexpr,
    L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads · chunks, blocks of head width). What blocks add to one gradient is written apart.

    `down` and `dscale`: gradients of what `load_row_scales` gives, of each row.
    """
    place, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence, first = place // chunks, place % chunks * (L // RANKS)
    row, head = sequence // heads, sequence % heads
    start = block * W
    width = WIDTH - start
    step, rank, inside = place_rows(time - first, RANKS, L)
    leads = inside & (rank == 0)
    # Offsets of steps and of rows in dense tensors, from those of the chunk's first.
    gate, line = step * heads, (step * RANKS + rank) * heads
    gates = (row * time + first) * heads + head
    lines = (row * time + first) * RANKS * heads + head
    # Each product of two rows is made once as [i, j] and once as [j, i]: a transposed sum of products, rounded
    # to 16 bits, is not safe as the left side of another on Hopper.
    past, seen = step[:, None] > step[None, :], step[:, None] >= step[None, :]

    cum, total = load_row_decays(decay_ptr + gates, gate, leads)
    own, scale = load_row_scales(step_ptr, weight_ptr, gates, gate, heads, time - first, inside, HAS_WEIGHT)
    turns_ptr += gates * PAIRS
    x_ptr += row * x_b + first * x_t + head * x_h + start
    x = load_rows(x_ptr, step * x_t + rank * x_r, inside, width, W)
    dy_ptr += row * dy_b + first * dy_t + head * dy_h + start
    dy = load_rows(dy_ptr, step * dy_t + rank * dy_r, inside, width, W)
    write_ptr += row * write_b + first * write_t + head * write_h
    write = load_rows(write_ptr, step * write_t + rank * write_r, inside, STATES, N)
    read_ptr += row * read_b + first * read_t + head * read_h
    read = load_rows(read_ptr, step * read_t + rank * read_r, inside, STATES, N)
    starts_ptr += place * STATES * WIDTH + start
    held = load_steps(starts_ptr, WIDTH, STATES, width, N, W)

    dread = tl.exp(cum)[:, None] * dot(dy, tl.trans(held), PRECISION)
    weights = decay_from_to(cum[None, :], cum[:, None], seen) * tl.where(past, scale[None, :], own[:, None])
    dread += dot(dot(dy, tl.trans(x), PRECISION) * weights, write, PRECISION)
    ddecay, dangle = pair_products(read, dread, L, N)
    if PAIRS:
        cos, sin = rotation(load_rows(turns_ptr, gate * PAIRS, inside, PAIRS, N // 2))
        dread = rotate(dread, cos, -sin, L, N)
    part = line * blocks
    dread_ptr += (lines * blocks + block) * STATES
    store_rows(dread_ptr, dread, part * STATES, inside, STATES, N)

    dend = load_steps(ends_ptr + place * STATES * WIDTH + start, WIDTH, STATES, width, N, W)
    decayed = tl.exp(total)
    passed = decayed * tl.sum(tl.sum(held * dend, axis=1), axis=0)
    if PAIRS:
        # Channel n of the state's gradient meets the other channel of its pair.
        channel = tl.arange(0, N) ^ 1
        other = load_rows(starts_ptr, channel * WIDTH, channel < STATES, width, W)
        even, odd = tl.split(tl.reshape(tl.sum(other * dend, axis=1), [N // 2, 2]))
        turned = decayed * (even - odd)

    decay_back = decay_from_to(cum[:, None], cum[None, :], step[:, None] <= step[None, :])
    past_back = step[:, None] < step[None, :]
    mix_back = dot(write, tl.trans(read), PRECISION)
    to_end = tl.exp(total - cum)
    dx = dot(tl.where(past_back, mix_back * decay_back, 0.0), dy, PRECISION)
    dx += to_end[:, None] * dot(write, dend, PRECISION)
    dx_own = dot(tl.where(past_back, 0.0, mix_back * decay_back), dy, PRECISION)
    at = lines * blocks + block
    tl.store(dscale_ptr + at + part, tl.sum(x * dx, axis=1), mask=inside)
    tl.store(down_ptr + at + part, tl.sum(x * dx_own, axis=1), mask=inside)
    dx = scale[:, None] * dx + own[:, None] * dx_own
    store_rows(dx_ptr + lines * WIDTH + start, dx, line * WIDTH, inside, width, W)

    weights_back = decay_back * tl.where(past_back, scale[:, None], own[:, None])
    dwrite = dot(dot(x, tl.trans(dy), PRECISION) * weights_back, read, PRECISION)
    product, turning = pair_products(write, dwrite, L, N)
    ddecay, dangle = ddecay - product, dangle + turning

    dwrite_end = to_end[:, None] * dot(x, tl.trans(dend), PRECISION)
    reached, turning = pair_products(write, dwrite_end, L, N)
    passing = scale * reached
    ddecay = tl.cumsum(ddecay, axis=0, reverse=True) + (tl.cumsum(passing, axis=0) - passing) + passed
    at = gates * blocks + block
    tl.store(ddecay_ptr + at + gate * blocks, ddecay.to(ddecay_ptr.dtype.element_ty), mask=leads)
    dwrite += scale[:, None] * dwrite_end
    if PAIRS:
        turning *= -scale[:, None]
        dangle = tl.cumsum(dangle, axis=0, reverse=True) + (tl.cumsum(turning, axis=0) - turning)
        dangle_ptr += (gates * blocks + block) * PAIRS
        store_rows(dangle_ptr, dangle + turned[None, :], gate * blocks * PAIRS, leads, PAIRS, N // 2)
        # Loaded again: the registers are needed in between.
        cos, sin = rotation(load_rows(turns_ptr, gate * PAIRS, inside, PAIRS, N // 2))
        dwrite = rotate(dwrite, cos, -sin, L, N)
    dwrite_ptr += (lines * blocks + block) * STATES
    store_rows(dwrite_ptr, dwrite, part * STATES, inside, STATES, N)


@triton.jit
def finish_kernel(  # type: ignore[no-untyped-def]
    step_ptr, weight_ptr, down_ptr, dscale_ptr, dstep_ptr, dweight_ptr,
    total, time, heads,
    RANKS: tl.constexpr, BLOCKS: tl.constexpr, HAS_WEIGHT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Grid (rows · time · heads / SIZE): gradients of Δ and λ, of which a step's scale has its own and the next."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < total
    has_before = inside & (at // heads % time > 0)
    # Rows of a step are `heads` apart, those of neighbouring steps `heads * RANKS`.
    first = (at // heads * RANKS * heads + at % heads) * BLOCKS
    own = tl.zeros([SIZE], tl.float32)
    later = tl.zeros([SIZE], tl.float32)
    for rank in tl.static_range(RANKS):
        for block in tl.static_range(BLOCKS):
            part = first + rank * heads * BLOCKS + block
            own += tl.load(down_ptr + part, mask=inside, other=0.0)
            own += tl.load(dscale_ptr + part, mask=inside, other=0.0)
            if HAS_WEIGHT:
                before = part - heads * RANKS * BLOCKS
                later += tl.load(dscale_ptr + before, mask=has_before, other=0.0)
    dstep = own
    if HAS_WEIGHT:
        step = tl.load(step_ptr + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dstep = weight * own + (1 - weight) * later
        dweight = step * (own - later)
        tl.store(dweight_ptr + at, dweight.to(dweight_ptr.dtype.element_ty), mask=inside)
    tl.store(dstep_ptr + at, dstep.to(dstep_ptr.dtype.element_ty), mask=inside)
