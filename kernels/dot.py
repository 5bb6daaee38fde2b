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
    """a @ b of float32 tiles, in a precision of `kernels.precision`, summed in float32."""
    if PRECISION == "tf32":
        a, b = round_tf32(a), round_tf32(b)
    if INTERPRETED:
        if PRECISION == "bf16":
            a, b = a.to(tl.bfloat16).to(tl.float32), b.to(tl.bfloat16).to(tl.float32)
        product = tl.dot(a, b, input_precision="ieee")
    elif PRECISION == "bf16":
        product = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        product = tl.dot(a, b, input_precision=PRECISION)
    return product
