"""Kernels of the causal convolution that walk along time with the last inputs in registers.

A program has N stretches of time, one behind the other in `n` = (row, block), of W channels. It reads each number once,
but for P around a stretch, and takes each sigmoid once. Loads of U steps come together and before their stores, since
the compiler moves no load over a store.

Legend: J taps, P = J − 1; a pointer `_at` is a tile `[N, W]`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED
from statelab.kernels.elementary import sigmoid

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them.
# ruff: noqa: RUF005


@triton.jit
def _sigmoid(x):
    """The logistic function, as near as `elementary.sigmoid`, but 0 below 1e-38: the care that Triton takes of such
    numbers is more instructions than the convolution.
    """
    if INTERPRETED:
        s = sigmoid(x)
    else:
        s = tl.inline_asm_elementwise(
            "mul.f32 $0, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 $0, $0; add.f32 $0, $0, 1.0; rcp.approx.ftz.f32 $0, $0;",
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return s


@triton.jit
def _tile(C, blocks, total, N: tl.constexpr, W: tl.constexpr):
    """Of a program: stretches and their rows and blocks, `[N, 1]`, channels `[1, W]`, and which of these there are."""
    groups = tl.cdiv(C, W)
    n = (tl.program_id(0) // groups * N + tl.arange(0, N))[:, None]
    c = (tl.program_id(0) % groups * W + tl.arange(0, W))[None, :]
    return n.to(tl.int64), (n // blocks).to(tl.int64), n % blocks, c, (n < total) & (c < C)


@triton.jit
def _weights(w_at, bias_at, C, inside, J: tl.constexpr, HAS_BIAS: tl.constexpr):
    """The weights of every tap, then the bias, or zeros."""
    out = ()
    for j in tl.static_range(J):
        out = out + (tl.load(w_at + j * C, inside, 0.0).to(tl.float32),)
    if HAS_BIAS:
        out = out + (tl.load(bias_at, inside, 0.0).to(tl.float32),)
    else:
        out = out + (tl.zeros(inside.shape, tl.float32),)
    return out


@triton.jit
def _input(x_at, x_T, state_at, t, T, C, inside, P: tl.constexpr, HAS_STATE: tl.constexpr):
    """Inputs of the steps t, `[N, 1]`: before the sequence those of the state or zeros, past its end zeros."""
    x = tl.load(x_at + t.to(tl.int64) * x_T, inside & (t >= 0) & (t < T), 0.0).to(tl.float32)
    if HAS_STATE:
        x += tl.load(state_at + (t + P) * C, inside & (t < 0) & (t >= -P), 0.0).to(tl.float32)
    return x


@triton.jit
def _inputs(x_at, x_T, state_at, t, T, C, inside, P: tl.constexpr, HAS_STATE: tl.constexpr):
    """Those of the P steps from t on."""
    out = ()
    for p in tl.static_range(P):
        out = out + (_input(x_at, x_T, state_at, t + p, T, C, inside, P, HAS_STATE),)
    return out


@triton.jit
def _read(at, stride, t, end, inside, U: tl.constexpr):
    """Numbers of the U steps from t on, zeros from `end` on, as they lie in memory."""
    out = ()
    for k in tl.static_range(U):
        out = out + (tl.load(at + k * stride, inside & (t + k < end), 0.0),)
    return out


@triton.jit
def _before_silu(window, weights):
    """bias + Σ_j weight[j] ⊙ window[j]."""
    total = weights[len(window)]
    for j in tl.static_range(len(window)):
        total += weights[j] * window[j]
    return total


@triton.jit
def _through_silu(window, weights, dy, SILU: tl.constexpr):
    """The gradient of a step's sum from that of its output."""
    d = dy.to(tl.float32)
    if SILU:
        total = _before_silu(window, weights)
        s = _sigmoid(total)
        d *= s * (1.0 + total * (1.0 - s))
    return d


@triton.jit(do_not_specialize=["T", "rows", "total", "stretch"])
def forward_kernel(
    x_ptr, w_ptr, bias_ptr, state_ptr, y_ptr, last_ptr, T, C, rows, total, stretch, x_B, x_T,
    J: tl.constexpr, SILU: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_STATE: tl.constexpr,
    U: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    P: tl.constexpr = J - 1
    _, b, block, c, inside = _tile(C, tl.cdiv(T, stretch), total, N, W)
    lane, t = b // rows, block * stretch
    x_at, state_at = x_ptr + b * x_B + c, state_ptr + b * P * C + c
    weights = _weights(w_ptr + lane * J * C + c, bias_ptr + lane * C + c, C, inside, J, HAS_BIAS)
    past = _inputs(x_at, x_T, state_at, t - P, T, C, inside, P, HAS_STATE)
    from_at = x_at + t.to(tl.int64) * x_T
    y_at = y_ptr + (b * T + t) * C + c
    for _ in range(0, stretch, U):
        x = _read(from_at, x_T, t, T, inside, U)
        for k in tl.static_range(U):
            window = past + (x[k].to(tl.float32),)
            y = _before_silu(window, weights)
            if SILU:
                y *= _sigmoid(y)
            tl.store(y_at + k * C, y.to(y_ptr.dtype.element_ty), inside & (t + k < T))
            past = window[1:]
        from_at += U * x_T
        y_at += U * C
        t += U
    if P > 0:
        # t is the stretch's end: the last one also hands on the last inputs.
        final = inside & (t >= T)
        ends = _inputs(x_at, x_T, state_at, T - P + 0 * t, T, C, final, P, HAS_STATE)
        for p in tl.static_range(P):
            tl.store(last_ptr + (b * P + p) * C + c, ends[p], final)


@triton.jit(do_not_specialize=["T", "rows", "total", "stretch"])
def backward_kernel(
    dy_ptr, dlast_ptr, x_ptr, w_ptr, bias_ptr, state_ptr, dx_ptr, dstate_ptr, parts_ptr,
    T, C, rows, total, stretch, dy_B, dy_T, x_B, x_T,
    J: tl.constexpr, SILU: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_STATE: tl.constexpr, HAS_DLAST: tl.constexpr,
    U: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Gradients of the inputs of a stretch, and what these inputs add to those of weight and bias.

    An input waits for the sums of the P steps after it. A state's places are the steps before the first.
    """
    P: tl.constexpr = J - 1
    BEFORE: tl.constexpr = P if HAS_STATE else 0
    n, b, block, c, inside = _tile(C, tl.cdiv(T + BEFORE, stretch), total, N, W)
    lane, t = b // rows, block * stretch - BEFORE
    x_at, state_at = x_ptr + b * x_B + c, state_ptr + b * P * C + c
    dy_at = dy_ptr + b * dy_B + c
    dx_at = dx_ptr + (b * T + t) * C + c
    dstate_at, dlast_at = dstate_ptr + (b * P + t + P) * C + c, dlast_ptr + (b * P + t - T + P) * C + c
    weights = _weights(w_ptr + lane * J * C + c, bias_ptr + lane * C + c, C, inside, J, HAS_BIAS)

    past = _inputs(x_at, x_T, state_at, t - P, T, C, inside, P, HAS_STATE)
    first = _inputs(x_at, x_T, state_at, t, T, C, inside, P, HAS_STATE)
    waiting = ()
    for p in tl.static_range(P):
        # With the dy of a state's places, zeros, a sum of any value gives nothing.
        seen = inside & (t + p >= 0) & (t + p < T)
        head = tl.load(dy_at + (t + p).to(tl.int64) * dy_T, seen, 0.0)
        waiting = waiting + (_through_silu((past + first)[p : p + J], weights, head, SILU),)
    past = first

    sums = ()
    for _ in tl.static_range(J + HAS_BIAS):
        sums = sums + (tl.zeros([N, W], tl.float32),)
    x_at += (t + P).to(tl.int64) * x_T
    dy_at += (t + P).to(tl.int64) * dy_T
    end = tl.minimum(T, t + P + stretch)
    next_x, next_dy = _read(x_at, x_T, t + P, end, inside, U), _read(dy_at, dy_T, t + P, end, inside, U)
    for _ in range(0, stretch, U):
        x, dy = next_x, next_dy
        x_at += U * x_T
        dy_at += U * dy_T
        # On their way while this round's are worked on.
        next_x = _read(x_at, x_T, t + P + U, end, inside, U)
        next_dy = _read(dy_at, dy_T, t + P + U, end, inside, U)
        for k in tl.static_range(U):
            window = past + (x[k].to(tl.float32),)
            d = waiting + (_through_silu(window, weights, dy[k], SILU),)
            dx = weights[P] * d[0]
            for ahead in tl.static_range(1, J):
                dx += weights[P - ahead] * d[ahead]
            grown = ()
            for j in tl.static_range(J):
                grown = grown + (sums[j] + window[0] * d[P - j],)
            if HAS_BIAS:
                grown = grown + (sums[J] + d[0],)
            sums = grown
            if HAS_DLAST:
                seen = inside & (t + k >= T - P) & (t + k < T)
                dx += tl.load(dlast_at + k * C, seen, 0.0).to(tl.float32)
            tl.store(dx_at + k * C, dx.to(dx_ptr.dtype.element_ty), inside & (t + k >= 0) & (t + k < T))
            if HAS_STATE:
                tl.store(dstate_at + k * C, dx.to(dstate_ptr.dtype.element_ty), inside & (t + k < 0))
            past, waiting = window[1:], d[1:]
        dx_at += U * C
        dlast_at += U * C
        dstate_at += U * C
        t += U
    for j in tl.static_range(J + HAS_BIAS):
        tl.store(parts_ptr + (n * (J + HAS_BIAS) + j) * C + c, sums[j], inside)


@triton.jit(do_not_specialize=["count"])
def sum_kernel(
    parts_ptr, dw_ptr, dbias_ptr, count, C,
    J: tl.constexpr, HAS_BIAS: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """A lane's parts `[count, J (+ 1), C]` into the gradients of weight and bias."""
    width = (J + HAS_BIAS) * C
    lane = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * W + tl.arange(0, W)
    n = tl.arange(0, N)[:, None]
    parts_ptr += lane * count * width
    total = tl.zeros([N, W], tl.float32)
    for first in range(0, count, N):
        at = parts_ptr + (first + n).to(tl.int64) * width + column[None, :]
        total += tl.load(at, (first + n < count) & (column < width)[None, :], 0.0)
    whole = tl.sum(total, axis=0)
    tl.store(dw_ptr + lane * J * C + column, whole.to(dw_ptr.dtype.element_ty), column < J * C)
    if HAS_BIAS:
        at = dbias_ptr + lane * C + column - J * C
        tl.store(at, whole.to(dbias_ptr.dtype.element_ty), (column >= J * C) & (column < width))
