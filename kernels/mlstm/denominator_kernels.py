"""Kernels of the mLSTM's n·q, walking along time with n in the registers of one warp.

Few sequences leave most of a card idle, so a step's latency counts. It is one multiply-add: sums over K wait for
nothing but their step. Steps go by blocks of U, unrolled; the next block's numbers are loaded before this one's are
worked on, since the compiler moves no load over a store, and later ones' are fetched into the second-level cache.
Steps past the end are read as k = 0, log f = 0: they leave n alone. Strides of time are constants: with the arithmetic
of addresses a step would take twice its instructions.

Legend: T time, H heads, K key width in a tile of W; c its columns, `inside` which of these there are; a pointer `_at`
is at the first step of a block, at a row's columns `[W]` or at one number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.elementary import fetch_ahead
from statelab.kernels.steps import LOG2E, from_log

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them.
# ruff: noqa: RUF005


@triton.jit
def _read(at, stride: tl.constexpr, t, T, inside, U: tl.constexpr):
    """Numbers or rows of the U steps from t on, as they lie in memory; zeros outside the sequence."""
    out = ()
    for u in tl.static_range(U):
        out = out + (tl.load(at + u * stride, inside & (t + u >= 0) & (t + u < T), 0.0),)
    return out


@triton.jit
def _exponentials(logs):
    """exp, but 0 below 1e-38: the care that Triton takes of such numbers is more instructions than the recurrence."""
    out = ()
    for u in tl.static_range(len(logs)):
        out = out + (from_log(logs[u] * LOG2E),)
    return out


@triton.jit
def _fetch(
    first_at, stride: tl.constexpr, t, T, width, U: tl.constexpr, PARTS: tl.constexpr, APART: tl.constexpr
):
    """Into the second-level cache, of the U steps from t on, PARTS places of each row; `first_at` is the sequence's."""
    step = tl.minimum(tl.maximum(t + tl.arange(0, U), 0), T - 1).to(tl.int64)[:, None]
    column = tl.minimum(tl.arange(0, PARTS) * APART, width - 1)[None, :]
    fetch_ahead(first_at + step * stride + column)


@triton.jit(do_not_specialize=["T"])
def forward_kernel(
    q_ptr, k_ptr, log_f_ptr, log_i_ptr, start_ptr, s_ptr, last_ptr, kept_ptr, T, q_B, q_H, k_B, k_H,
    H: tl.constexpr, K: tl.constexpr, q_T: tl.constexpr, k_T: tl.constexpr,
    HAS_START: tl.constexpr, U: tl.constexpr, W: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """n·q of every step, the last n, and n before each block."""
    row = tl.program_id(0).to(tl.int64)
    b, h = row // H, row % H
    c = tl.arange(0, W)
    inside = c < K
    q_first, k_first = q_ptr + b * q_B + h * q_H, k_ptr + b * k_B + h * k_H
    f_first, i_first = log_f_ptr + b * T * H + h, log_i_ptr + b * T * H + h
    q_at, k_at, f_at, i_at = q_first + c, k_first + c, f_first, i_first
    s_at = s_ptr + b * T * H + h
    kept_at = kept_ptr + row * tl.cdiv(T, U) * K + c
    n = tl.zeros([W], tl.float32)
    if HAS_START:
        n = tl.load(start_ptr + row * K + c, inside, 0.0)
    next_q, next_k = _read(q_at, q_T, 0, T, inside, U), _read(k_at, k_T, 0, T, inside, U)
    next_f, next_i = _read(f_at, H, 0, T, True, U), _read(i_at, H, 0, T, True, U)
    for t in range(0, T, U):
        q, k, f, i = next_q, next_k, _exponentials(next_f), _exponentials(next_i)
        q_at += U * q_T
        k_at += U * k_T
        f_at += U * H
        i_at += U * H
        next_q, next_k = _read(q_at, q_T, t + U, T, inside, U), _read(k_at, k_T, t + U, T, inside, U)
        next_f, next_i = _read(f_at, H, t + U, T, True, U), _read(i_at, H, t + U, T, True, U)
        if AHEAD:
            _fetch(q_first, q_T, t + AHEAD, T, K, U, PARTS, W // PARTS)
            _fetch(k_first, k_T, t + AHEAD, T, K, U, PARTS, W // PARTS)
            _fetch(f_first, H, t + AHEAD, T, 1, U, 1, 1)
            _fetch(i_first, H, t + AHEAD, T, 1, U, 1, 1)
        tl.store(kept_at, n, inside)
        for u in tl.static_range(U):
            n = f[u] * n + i[u] * k[u].to(tl.float32)
            tl.store(s_at + u * H, tl.sum(n * q[u].to(tl.float32), axis=0), t + u < T)
        kept_at += K
        s_at += U * H
    tl.store(last_ptr + row * K + c, n, inside)


@triton.jit(do_not_specialize=["T"])
def backward_kernel(
    q_ptr, k_ptr, log_f_ptr, log_i_ptr, kept_ptr, ds_ptr, dlast_ptr,
    dq_ptr, dk_ptr, dlog_f_ptr, dlog_i_ptr, dstart_ptr, T, q_B, q_H, k_B, k_H,
    H: tl.constexpr, K: tl.constexpr, q_T: tl.constexpr, k_T: tl.constexpr,
    HAS_DLAST: tl.constexpr, HAS_START: tl.constexpr,
    U: tl.constexpr, W: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """With ∂n_t = f_{t+1} ∂n_{t+1} + ∂s_t q_t: ∂q_t = ∂s_t n_t, ∂k_t = i_t ∂n_t, ∂log i_t = ⟨∂k_t, k_t⟩ and
    ∂log f_t = ⟨f_t ∂n_t, n_{t−1}⟩."""
    row = tl.program_id(0).to(tl.int64)
    b, h = row // H, row % H
    c = tl.arange(0, W)
    inside = c < K
    blocks = tl.cdiv(T, U)
    t = (blocks - 1) * U
    q_first, k_first = q_ptr + b * q_B + h * q_H, k_ptr + b * k_B + h * k_H
    f_first, i_first, ds_first = log_f_ptr + b * T * H + h, log_i_ptr + b * T * H + h, ds_ptr + b * T * H + h
    far = t.to(tl.int64)
    q_at, k_at = q_first + far * q_T + c, k_first + far * k_T + c
    f_at, i_at, ds_at = f_first + far * H, i_first + far * H, ds_first + far * H
    gate = (b * T + far) * H + h
    df_at, di_at, dq_at, dk_at = (
        dlog_f_ptr + gate,
        dlog_i_ptr + gate,
        dq_ptr + gate * K + c,
        dk_ptr + gate * K + c,
    )
    kept_at = kept_ptr + (row * blocks + blocks - 1) * K + c
    dn = tl.zeros([W], tl.float32)
    if HAS_DLAST:
        dn = tl.load(dlast_ptr + row * K + c, inside, 0.0)
    next_q, next_k = _read(q_at, q_T, t, T, inside, U), _read(k_at, k_T, t, T, inside, U)
    next_f, next_i = _read(f_at, H, t, T, True, U), _read(i_at, H, t, T, True, U)
    next_ds, next_n = _read(ds_at, H, t, T, True, U), tl.load(kept_at, inside, 0.0)
    for _ in range(blocks):
        q, k, f, i = next_q, next_k, _exponentials(next_f), _exponentials(next_i)
        ds, n = next_ds, (next_n,)
        q_at -= U * q_T
        k_at -= U * k_T
        f_at -= U * H
        i_at -= U * H
        ds_at -= U * H
        kept_at -= K
        next_q, next_k = _read(q_at, q_T, t - U, T, inside, U), _read(k_at, k_T, t - U, T, inside, U)
        next_f, next_i = _read(f_at, H, t - U, T, True, U), _read(i_at, H, t - U, T, True, U)
        next_ds, next_n = _read(ds_at, H, t - U, T, True, U), tl.load(kept_at, inside & (t >= U), 0.0)
        if AHEAD:
            _fetch(q_first, q_T, t - AHEAD, T, K, U, PARTS, W // PARTS)
            _fetch(k_first, k_T, t - AHEAD, T, K, U, PARTS, W // PARTS)
            _fetch(f_first, H, t - AHEAD, T, 1, U, 1, 1)
            _fetch(i_first, H, t - AHEAD, T, 1, U, 1, 1)
            _fetch(ds_first, H, t - AHEAD, T, 1, U, 1, 1)
        for u in tl.static_range(U):
            n = n + (f[u] * n[u] + i[u] * k[u].to(tl.float32),)
        for u in tl.static_range(U - 1, -1, -1):
            # n[u] is before the step, n[u + 1] after it.
            there = t + u < T
            tl.store(dq_at + u * (H * K), (ds[u] * n[u + 1]).to(dq_ptr.dtype.element_ty), inside & there)
            dn += ds[u] * q[u].to(tl.float32)
            dk = i[u] * dn
            tl.store(dk_at + u * (H * K), dk.to(dk_ptr.dtype.element_ty), inside & there)
            tl.store(di_at + u * H, tl.sum(dk * k[u].to(tl.float32), axis=0), there)
            dn *= f[u]
            tl.store(df_at + u * H, tl.sum(dn * n[u], axis=0), there)
        dq_at -= U * H * K
        dk_at -= U * H * K
        df_at -= U * H
        di_at -= U * H
        t -= U
    if HAS_START:
        tl.store(dstart_ptr + row * K + c, dn, inside)
