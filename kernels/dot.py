"""Triton helpers that several ops share."""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
"""Triton's interpreter multiplies in float32 and knows no split of it."""


@triton.jit
def round_tf32(x):  # type: ignore[no-untyped-def]
    """float32 rounded to the 10-bit mantissa of tf32: matrix units cut the rest off, which biases every sum."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """a @ b of tiles up to float32, in a precision of `kernels.precision`, summed in float32."""
    if PRECISION == "bf16":
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    else:
        a, b = a.to(tl.float32), b.to(tl.float32)
    if PRECISION == "tf32":
        a, b = round_tf32(a), round_tf32(b)
    if INTERPRETED:
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    elif PRECISION == "bf16":
        product = tl.dot(a, b)
    else:
        product = tl.dot(a, b, input_precision=PRECISION)
    return product


@triton.jit
def turned(tile, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """The transpose of a tile, as one side of `dot`. In bf16 it is rounded first: what lies in shared memory in 16 bits
    is turned as it is loaded, what is wider makes a way through it of its own."""
    if PRECISION == "bf16":
        tile = tile.to(tl.bfloat16)
    return tl.trans(tile)
