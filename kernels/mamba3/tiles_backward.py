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

from statelab.kernels.dot import dot, turned
from statelab.kernels.mamba3.phases import pair_products, place_rows, rotate, rotation
from statelab.kernels.mamba3.tiles_forward import load_row_decays, load_row_scales, weighted
from statelab.kernels.steps import decay_from_to, from_log, load_rows, load_steps, store_rows, store_steps


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
        dstate = from_log(total) * dstate + dot(
            turned(read, PRECISION), from_log(cum)[:, None] * dy, PRECISION
        )
    if HAS_STATE:
        tl.store(dstate_ptr + state_at, dstate, mask=state_inside)


@triton.jit
def scale_before(  # type: ignore[no-untyped-def]
    x_ptr, x_r, write_ptr, write_r, dend_ptr, dend_n, width,
    RANKS: tl.constexpr, STATES: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """The gradient of the scale of the step before a chunk, Σ_r x_rᵀ dSᵀ B_r: only the state between carries it on."""
    state, column = tl.arange(0, N), tl.arange(0, W)
    dend = load_rows(dend_ptr, state * dend_n, state < STATES, width, W)
    total = tl.zeros([N], tl.float32)
    for rank in tl.static_range(RANKS):
        x = tl.load(x_ptr + rank * x_r + column, mask=column < width, other=0.0).to(tl.float32)
        write = tl.load(write_ptr + rank * write_r + state, mask=state < STATES, other=0.0).to(tl.float32)
        total += write * tl.sum(dend * x[None, :], axis=1)
    return tl.sum(total, axis=0)


@triton.jit
def gradients_kernel(  # type: ignore[no-untyped-def]
    dy_ptr, x_ptr, decay_ptr, step_ptr, weight_ptr, turns_ptr, write_ptr, read_ptr, starts_ptr, ends_ptr,
    dx_ptr, ddecay_ptr, dstep_ptr, dweight_ptr, dangle_ptr, dwrite_ptr, dread_ptr,
    time, heads, chunks, blocks,
    dy_b, dy_t, dy_r, dy_h, x_b, x_t, x_r, x_h,
    write_b, write_t, write_r, write_h, read_b, read_t, read_r, read_h,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, STATES: tl.constexpr, PAIRS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, APART: tl.constexpr, PRECISION: tl.constexpr,
    L: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Grid (rows · heads · chunks, blocks of head width). What blocks add to one gradient is written apart."""
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
    # to 16 bits, is not safe as the left side of another on Hopper. `APART`: what a step sees of itself is a number for
    # each row, no part of a product.
    past, past_back = step[:, None] > step[None, :], step[:, None] < step[None, :]
    same = step[:, None] == step[None, :]

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

    dmix = dot(dy, turned(x, PRECISION), PRECISION)
    decay = decay_from_to(cum[None, :], cum[:, None], past)
    dread = dot(weighted(dmix, decay, scale[None, :], own[:, None], same, APART), write, PRECISION)
    dread += from_log(cum)[:, None] * dot(dy, turned(held, PRECISION), PRECISION)
    read_product, dangle = pair_products(read, dread, L, N)
    if APART:
        # Behind the sums for decays and phases, to which reads and writes of one step would give the same.
        itself = tl.sum(x.to(tl.float32) * dy, axis=1)
        dread += (own * itself)[:, None] * write
    if PAIRS:
        cos, sin = rotation(load_rows(turns_ptr, gate * PAIRS, inside, PAIRS, N // 2), PRECISION)
        dread = rotate(dread, cos, -sin, L, N)
    part = line * blocks
    dread_ptr += (lines * blocks + block) * STATES
    store_rows(dread_ptr, dread, part * STATES, inside, STATES, N)

    dend = load_steps(ends_ptr + place * STATES * WIDTH + start, WIDTH, STATES, width, N, W)
    decayed = from_log(total)
    passed = decayed * tl.sum(tl.sum(held.to(tl.float32) * dend, axis=1), axis=0)
    if PAIRS:
        # Channel n of the state's gradient meets the other channel of its pair.
        channel = tl.arange(0, N) ^ 1
        other = load_rows(starts_ptr, channel * WIDTH, channel < STATES, width, W)
        even, odd = tl.split(tl.reshape(tl.sum(other.to(tl.float32) * dend, axis=1), [N // 2, 2]))
        of_state = decayed * (even - odd)

    decay_back = decay_from_to(cum[:, None], cum[None, :], past_back)
    mix_back = dot(write, turned(read, PRECISION), PRECISION)
    to_end = from_log(total - cum)
    dx = dot(mix_back * decay_back, dy, PRECISION) + to_end[:, None] * dot(write, dend, PRECISION)
    if APART:
        seen = tl.sum(write.to(tl.float32) * read, axis=1)
        dx_own, down = seen[:, None] * dy, seen * itself
    else:
        dx_own = dot(tl.where(same, mix_back, 0.0), dy, PRECISION)
        down = tl.sum(x * dx_own, axis=1)
    # Gradients of what `load_row_scales` gives, of each row and summed over the ranks of its step or of the one before.
    dscale = tl.sum(x * dx, axis=1)
    dx = scale[:, None] * dx + own[:, None] * dx_own
    store_rows(dx_ptr + lines * WIDTH + start, dx, line * WIDTH, inside, width, W)
    down += dscale
    if RANKS > 1:
        down = tl.sum(tl.where(same, down[None, :], 0.0), axis=1)
    at, offset = gates * blocks + block, gate * blocks
    if HAS_WEIGHT:
        later = tl.sum(tl.where(step[:, None] == step[None, :] + 1, dscale[None, :], 0.0), axis=1)
        if first > 0:
            dend_ptr = ends_ptr + (place - 1) * STATES * WIDTH + start
            before = scale_before(
                x_ptr - x_t, x_r, write_ptr - write_t, write_r, dend_ptr, WIDTH, width, RANKS, STATES, N, W
            )
            later += tl.where(step == 0, before, 0.0)
        delta = tl.load(step_ptr + gates + gate, mask=leads, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + gates + gate, mask=leads, other=0.0).to(tl.float32)
        dweight = delta * (down - later)
        tl.store(dweight_ptr + at + offset, dweight.to(dweight_ptr.dtype.element_ty), mask=leads)
        down = weight * down + (1 - weight) * later
    tl.store(dstep_ptr + at + offset, down.to(dstep_ptr.dtype.element_ty), mask=leads)

    dmix_back = dot(x, turned(dy, PRECISION), PRECISION)
    dmix_back = weighted(dmix_back, decay_back, scale[:, None], own[:, None], same, APART)
    dwrite = dot(dmix_back, read, PRECISION)
    write_product, turning = pair_products(write, dwrite, L, N)
    ddecay, dangle = tl.sum(read_product - write_product, axis=1), dangle + turning
    dwrite_end = (scale * to_end)[:, None] * dot(x, turned(dend, PRECISION), PRECISION)
    write_product, turning = pair_products(write, dwrite_end, L, N)
    passing = tl.sum(write_product, axis=1)
    ddecay = tl.cumsum(ddecay, axis=0, reverse=True) + (tl.cumsum(passing, axis=0) - passing) + passed
    tl.store(ddecay_ptr + at + offset, ddecay.to(ddecay_ptr.dtype.element_ty), mask=leads)
    dwrite += dwrite_end
    if APART:
        dwrite += (own * itself)[:, None] * read
    if PAIRS:
        # Of what reaches the chunk's end a step is passed by all before it: by all but those from it on.
        of_state -= tl.sum(turning, axis=0)
        dangle = tl.cumsum(dangle + turning, axis=0, reverse=True)
        dangle_ptr += (gates * blocks + block) * PAIRS
        store_rows(dangle_ptr, dangle + of_state[None, :], gate * blocks * PAIRS, leads, PAIRS, N // 2)
        # Loaded again: the registers are needed in between.
        cos, sin = rotation(load_rows(turns_ptr, gate * PAIRS, inside, PAIRS, N // 2), PRECISION)
        dwrite = rotate(dwrite, cos, -sin, L, N)
    dwrite_ptr += (lines * blocks + block) * STATES
    store_rows(dwrite_ptr, dwrite, part * STATES, inside, STATES, N)
