"""Triton helpers of the kernels that are sequential in time: functions of one number, and reading ahead.

tanh and the logistic function keep a relative error below 1e-6, except where tanh says otherwise. Triton's own tanh
needs a library that its interpreter does not have.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED


@triton.jit
def tanh(x, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """tanh of a float32 tile. Where products are made in bf16 it is the hardware's, off by 5e-4 at most: the
    units for such functions, not those for products, bound a kernel that takes it of a whole state each step.
    """
    if PRECISION == "bf16" and not INTERPRETED:
        result = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        # Overflow is harmless: exp = inf gives 1.
        far = 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)
        # There the difference above cancels. Least squares for (tanh(x)/x - 1)/x² in s = x² up to 0.36.
        s = x * x
        near = 0.020800614 - 0.0059003574 * s
        near = near * s - 0.053785269
        near = near * s + 0.13331942
        near = near * s - 0.33333299
        result = tl.where(s < 0.36, x + x * s * near, far)
    return result


@triton.jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    """The logistic function of a float32 tile."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def clamp(x, bound):  # type: ignore[no-untyped-def]
    """x between -bound and bound; unlike a minimum of two numbers it lets a NaN through."""
    return tl.clamp(x, -bound, bound, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clipped_sum(readout, carried, bound, CLIP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A state's gradient from what is read of it and what the next step sends back; see `kernels.clip`."""
    if CLIP == "total":
        gradient = clamp(readout + carried, bound)
    elif CLIP == "carried":
        gradient = readout + clamp(carried, bound)
    else:
        gradient = readout + carried
    return gradient


@triton.jit
def fetch_ahead(pointers):  # type: ignore[no-untyped-def]
    """Bring what these pointers name into the second-level cache, for a later step to load."""
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            "=r,l",
            [pointers],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
