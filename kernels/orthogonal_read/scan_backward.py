"""Triton: gradients of the reads, chunk by chunk, then across chunks. See `scan`. Legend as in `tiles`."""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import dot
from statelab.kernels.orthogonal_read.memory import (
    load_fragments,
    load_vector,
    store_fragments,
    store_vector,
)
from statelab.kernels.orthogonal_read.newton_schulz import (
    iterate,
    iterate_backward,
    kept_tiles,
    last_read_backward,
    outer,
    passing_tiles,
    store_iteration,
)
from statelab.kernels.orthogonal_read.scan_forward import INTEGERS, SMALLEST
from statelab.kernels.orthogonal_read.tiles import (
    add_outer,
    combine,
    inner,
    operand,
    parts_of,
    scaled,
    times_vector,
    vector_times,
)

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


SMALLEST_GRADIENT = tl.constexpr(1e-30)
"""Norms of a gradient below it count as it."""


@triton.jit
def memory_backward(
    place, query, g, saved, iterations, beta, gamma, growth, a, b, c,
    READ: tl.constexpr, STRAIGHT: tl.constexpr, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Gradients of the memory at `place` and of the query from that of a read, and ⟨gradient, memory⟩.

    `saved` is this program's room for what iterations keep, in their order, and what passes through.
    """
    STORED: tl.constexpr = kept_tiles(N, SQUARE) * 256 * parts_of(FORMAT)
    memory = load_fragments(place, N * N)
    norm = tl.sqrt(inner(memory, memory))
    size = tl.maximum(norm, SMALLEST)
    x = scaled(1 / size, memory)
    beta_j, gamma_j = beta, gamma
    if READ == "normed":
        r, dq = outer(query, g, N), times_vector(x, g, N)
    else:
        for step in range(iterations - 1):
            left = operand(x, FORMAT)
            x, made = iterate(x, left, beta_j, gamma_j, SQUARE, N, FORMAT)
            store_iteration(saved + step * STORED, left, made, N)
            beta_j, gamma_j = beta_j * growth, gamma_j * growth * growth
        r, dq = last_read_backward(x, query, g, a, b, c, SQUARE, N)
    # Iterations make at most 500 times as much of a gradient of norm 1, which float16 holds.
    extent = tl.maximum(tl.sqrt(inner(r, r)), SMALLEST_GRADIENT) if FORMAT == "fp16" else 1.0
    if FORMAT == "fp16":
        r = scaled(1 / extent, r)
    if STRAIGHT == "backward":
        dq = times_vector(memory, g, N)
    if STRAIGHT == "forward":
        gradient = outer(query, g, N)
        along = inner(gradient, memory)
    else:
        tl.debug_barrier()
        if READ == "iterated":
            for back in range(iterations - 1):
                beta_j, gamma_j = beta_j / growth, gamma_j / (growth * growth)
                at = saved + (iterations - 2 - back) * STORED
                room = saved + (iterations - 1) * STORED
                r = iterate_backward(r, at, room, beta_j, gamma_j, SQUARE, N, FORMAT)
        # Loaded again: registers have no room for it beside the iterations.
        memory = load_fragments(place, N * N)
        across = extent * inner(r, memory)
        inside = norm > SMALLEST
        # A norm's gradient takes away what lies along the memory: all of it, unless the norm counts as SMALLEST.
        gradient = combine(extent / size, r, tl.where(inside, -across / (size * size * size), 0.0), memory)
        along = tl.where(inside, 0.0, across / size)
    return gradient, dq, along


@triton.jit(do_not_specialize=INTEGERS)
def backward_kernel(
    q, k, v, log_decay, log_gain, states, dy,
    dq, dk, dv, dgain, dalong, ends, memories, saved,
    time, heads, chunks, total, key_width, value_width, iterations,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head,
    beta, gamma, growth, a, b, c,
    READ: tl.constexpr, STRAIGHT: tl.constexpr, SQUARE: tl.constexpr,
    N: tl.constexpr, FORMAT: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Program p takes chunks p, p + P, …: remakes a chunk's memories, then goes back over its steps.

    Gradients are those from reads of the chunk itself; `ends` gets that of the memory at its start.
    """
    SIZE: tl.constexpr = N * N * 256
    program = tl.program_id(0).to(tl.int64)
    own = memories + program * L * SIZE
    tiles = (iterations - 1) * kept_tiles(N, SQUARE) + passing_tiles(N, SQUARE)
    room = saved + program * tiles * (256 * parts_of(FORMAT))
    for small_index in range(tl.program_id(0), total, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + small_index
        lane, chunk = index // chunks, small_index % chunks
        row, head = lane // heads, lane % heads
        first, count = chunk * L, tl.minimum(L, time - chunk * L)
        memory = load_fragments(states + index * SIZE, N * N)
        for s in range(count):
            t = first + s
            gate = (row * time + t) * heads + head
            decay, gain = tl.exp(tl.load(log_decay + gate)), tl.exp(tl.load(log_gain + gate))
            key = load_vector(k + row * k_row + t * k_time + head * k_head, key_width, N)
            value = load_vector(v + row * v_row + t * v_time + head * v_head, value_width, N)
            memory = add_outer(scaled(decay, memory), scaled(gain, key), value, N)
            store_fragments(own + s * SIZE, memory)
        # Of the memory before a step, from the chunk's reads since.
        carried = ends + index * SIZE
        store_fragments(carried, scaled(0.0, memory))
        tl.debug_barrier()
        for back in range(count):
            s = count - 1 - back
            t = first + s
            gate = (row * time + t) * heads + head
            query = load_vector(q + row * q_row + t * q_time + head * q_head, key_width, N)
            g = load_vector(dy + gate * value_width, value_width, N)
            gradient, query_gradient, along = memory_backward(
                own + s * SIZE, query, g, room, iterations, beta, gamma, growth, a, b, c,
                READ, STRAIGHT, SQUARE, N, FORMAT,
            )  # fmt: skip
            store_vector(dq + gate * key_width, query_gradient, key_width, N)
            gradient = combine(1.0, gradient, 1.0, load_fragments(carried, N * N))
            store_fragments(carried, scaled(tl.exp(tl.load(log_decay + gate)), gradient))
            key = load_vector(k + row * k_row + t * k_time + head * k_head, key_width, N)
            value = load_vector(v + row * v_row + t * v_time + head * v_head, value_width, N)
            gain = tl.exp(tl.load(log_gain + gate))
            toward_key = scaled(gain, times_vector(gradient, value, N))
            store_vector(dk + gate * key_width, toward_key, key_width, N)
            toward_value = scaled(gain, vector_times(key, gradient, N))
            store_vector(dv + gate * value_width, toward_value, value_width, N)
            gained = 0.0
            for i in tl.static_range(N):
                gained += tl.sum(toward_key[i] * key[i], axis=0)
            tl.store(dgain + gate, gained)
            tl.store(dalong + gate, along)
            tl.debug_barrier()


@triton.jit(do_not_specialize=INTEGERS)
def carry_kernel(
    log_decay, dlast, ends, dstart,
    time, heads, chunks, key_width, value_width,
    N: tl.constexpr, L: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (row and head, tile): from what each chunk sends to its start, what each gets at its end."""
    lane, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, head = lane // heads, lane % heads
    r, column = tile // N * 16 + tl.arange(0, 16)[:, None], tile % N * 16 + tl.arange(0, 16)[None, :]
    inside = (r < key_width) & (column < value_width)
    place = lane * key_width * value_width + r * value_width + column
    slots = ends + (lane * chunks * N * N + tile) * 256
    gradient = tl.load(dlast + place, mask=inside, other=0.0)
    for back in range(0, chunks, AHEAD):
        owns, decays = (), ()
        for ahead in tl.static_range(AHEAD):
            # Loads of chunks that follow do not wait for sums.
            chunk = chunks - 1 - back - ahead
            owns = owns + load_fragments(slots + tl.maximum(chunk, 0) * (N * N * 256), 1)
            t = chunk * L + tl.arange(0, L)
            seen = (t < time) & (chunk >= 0)
            gates = tl.load(log_decay + (row * time + t) * heads + head, mask=seen, other=0.0)
            decays = decays + (tl.exp(tl.sum(gates, axis=0)),)
        tl.debug_barrier()
        for ahead in tl.static_range(AHEAD):
            chunk = chunks - 1 - back - ahead
            if chunk >= 0:
                store_fragments(slots + chunk * (N * N * 256), (gradient,))
                gradient = owns[ahead] + decays[ahead] * gradient
    tl.store(dstart + place, gradient, mask=inside)


@triton.jit(do_not_specialize=INTEGERS)
def finish_kernel(
    k, v, log_decay, log_gain, ends, dk, dv, dgain, dk_out, dv_out,
    time, heads, chunks, key_width, value_width,
    k_row, k_time, k_head, v_row, v_time, v_head,
    N: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Program (row, head and chunk): adds what comes from reads of later chunks, and from the last memory."""
    index = tl.program_id(0).to(tl.int64)
    lane, chunk = index // chunks, index % chunks
    row, head = lane // heads, lane % heads
    t, at = chunk * L + tl.arange(0, L), tl.arange(0, 16)
    here = t < time
    gates = (row * time + t) * heads + head
    decays = tl.load(log_decay + gates, mask=here, other=0.0)
    gains = tl.load(log_gain + gates, mask=here, other=-float("inf"))
    # What a step wrote is there at the chunk's end with this weight.
    weight = tl.exp(tl.sum(decays, axis=0) - tl.cumsum(decays, axis=0) + gains)[:, None]
    gradient = load_fragments(ends + index * (N * N * 256), N * N)
    keys, values = (), ()
    for i in tl.static_range(N):
        r = (i * 16 + at)[None, :]
        place = k + row * k_row + head * k_head + t[:, None] * k_time + r
        keys = keys + (tl.load(place, mask=here[:, None] & (r < key_width), other=0.0).to(tl.float32),)
        place = v + row * v_row + head * v_head + t[:, None] * v_time + r
        values = values + (tl.load(place, mask=here[:, None] & (r < value_width), other=0.0).to(tl.float32),)
    gained = tl.zeros([L], tl.float32)
    for i in tl.static_range(N):
        toward_key = tl.zeros([L, 16], tl.float32)
        toward_value = tl.zeros([L, 16], tl.float32)
        for j in tl.static_range(N):
            toward_key += dot(values[j], tl.trans(gradient[i * N + j]), "bf16x6")
            toward_value += dot(keys[j], gradient[j * N + i], "bf16x6")
        toward_key, toward_value = weight * toward_key, weight * toward_value
        gained += tl.sum(toward_key * keys[i], axis=1)
        r = (i * 16 + at)[None, :]
        place = gates[:, None] * key_width + r
        inside = here[:, None] & (r < key_width)
        toward_key += tl.load(dk + place, mask=inside, other=0.0)
        tl.store(dk_out + place, toward_key.to(dk_out.dtype.element_ty), mask=inside)
        place = gates[:, None] * value_width + r
        inside = here[:, None] & (r < value_width)
        toward_value += tl.load(dv + place, mask=inside, other=0.0)
        tl.store(dv_out + place, toward_value.to(dv_out.dtype.element_ty), mask=inside)
    gained += tl.load(dgain + gates, mask=here, other=0.0)
    tl.store(dgain + gates, gained, mask=here)
