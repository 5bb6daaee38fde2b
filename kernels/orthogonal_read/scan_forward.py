"""Triton: memories at the starts of chunks, and the reads of every step. See `scan`. Legend as in `tiles`."""

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
from statelab.kernels.orthogonal_read.newton_schulz import iterate, last_read
from statelab.kernels.orthogonal_read.tiles import (
    add_outer,
    inner,
    operand,
    scaled,
    vector_times,
)

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005

INTEGERS = [
    *("time", "heads", "chunks", "total", "key_width", "value_width", "iterations"),
    *(f"{tensor}_{axis}" for tensor in "qkv" for axis in ("row", "time", "head")),
]
"""Arguments whose divisibility is no business of the compiler's: one kernel serves all lengths and layouts."""

SMALLEST = tl.constexpr(1e-6)
"""Norms below it count as it."""


@triton.jit(do_not_specialize=INTEGERS)
def states_kernel(
    k, v, log_decay, log_gain, start, states, last,
    time, heads, chunks, key_width, value_width,
    k_row, k_time, k_head, v_row, v_time, v_head,
    N: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Program (row and head, column of tiles): walks over chunks, writing the memory at the start of each."""
    lane, j = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, head = lane // heads, lane % heads
    step, at = tl.arange(0, L), tl.arange(0, 16)
    column = j * 16 + at
    memory = ()
    for i in tl.static_range(N):
        r = i * 16 + at
        inside = (r < key_width)[:, None] & (column < value_width)[None, :]
        place = start + lane * key_width * value_width + r[:, None] * value_width + column[None, :]
        memory = memory + (tl.load(place, mask=inside, other=0.0),)
    for c in range(chunks):
        out = states + ((lane * chunks + c) * N * N + j) * 256
        for i in tl.static_range(N):
            store_fragments(out + i * N * 256, (memory[i],))
        t = c * L + step
        here = t < time
        gates = (row * time + t) * heads + head
        decay = tl.load(log_decay + gates, mask=here, other=0.0)
        gain = tl.load(log_gain + gates, mask=here, other=-float("inf"))
        total = tl.sum(decay, axis=0)
        weight = tl.exp(total - tl.cumsum(decay, axis=0) + gain)
        seen = here[:, None] & (column < value_width)[None, :]
        values = tl.load(
            v + row * v_row + head * v_head + t[:, None] * v_time + column[None, :], mask=seen, other=0.0
        )
        values = values.to(tl.float32) * weight[:, None]
        after = ()
        for i in tl.static_range(N):
            r = i * 16 + at
            # A name of its own: a loop's variables keep their type, and keys may have another than memories.
            written = k + row * k_row + head * k_head + t[None, :] * k_time + r[:, None]
            keys = tl.load(written, mask=here[None, :] & (r < key_width)[:, None], other=0.0).to(tl.float32)
            after = after + (tl.exp(total) * memory[i] + dot(keys, values, "bf16x6"),)
        memory = after
    for i in tl.static_range(N):
        r = i * 16 + at
        inside = (r < key_width)[:, None] & (column < value_width)[None, :]
        place = last + lane * key_width * value_width + r[:, None] * value_width + column[None, :]
        tl.store(place, memory[i], mask=inside)


@triton.jit(do_not_specialize=INTEGERS)
def forward_kernel(
    q, k, v, log_decay, log_gain, states, y, memories,
    time, heads, chunks, total, key_width, value_width, iterations,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head,
    beta, gamma, growth, a, b, c,
    READ: tl.constexpr, SQUARE: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Program p takes chunks p, p + P, …, step by step. `memories` keeps its memory between two steps: registers
    have no room for it beside the iterations. READ: by iterations, the "normed" memory's, or the "raw" one's."""
    SIZE: tl.constexpr = N * N * 256
    own = memories + tl.program_id(0).to(tl.int64) * SIZE
    for small_index in range(tl.program_id(0), total, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + small_index
        lane, chunk = index // chunks, small_index % chunks
        row, head = lane // heads, lane % heads
        store_fragments(own, load_fragments(states + index * SIZE, N * N))
        tl.debug_barrier()
        for t in range(chunk * L, tl.minimum(chunk * L + L, time)):
            gate = (row * time + t) * heads + head
            decay, gain = tl.exp(tl.load(log_decay + gate)), tl.exp(tl.load(log_gain + gate))
            key = load_vector(k + row * k_row + t * k_time + head * k_head, key_width, N)
            value = load_vector(v + row * v_row + t * v_time + head * v_head, value_width, N)
            query = load_vector(q + row * q_row + t * q_time + head * q_head, key_width, N)
            memory = scaled(decay, load_fragments(own, N * N))
            memory = add_outer(memory, scaled(gain, key), value, N)
            store_fragments(own, memory)
            if READ == "raw":
                read = vector_times(query, memory, N)
            else:
                x = scaled(1 / tl.maximum(tl.sqrt(inner(memory, memory)), SMALLEST), memory)
                if READ == "normed":
                    read = vector_times(query, x, N)
                else:
                    beta_j, gamma_j = beta, gamma
                    for _ in range(iterations - 1):
                        x, _ = iterate(x, operand(x, FORMAT), beta_j, gamma_j, SQUARE, N, FORMAT)
                        beta_j, gamma_j = beta_j * growth, gamma_j * growth * growth
                    read = last_read(x, query, a, b, c, SQUARE, N)
            store_vector(y + gate * value_width, read, value_width, N)
            # The next step's loads see this step's stores, whichever threads they belong to.
            tl.debug_barrier()
