"""Square matrices in the registers of one warp, as tiles of 16 × 16; products without data movement.

A matrix is a tuple of N·N float32 tiles, row by row; as an *operand* of a product it is one such tuple of 16-bit tiles
or several, one behind the other, which sum to it: hi, or hi + lo, or three of them. FORMAT says of what, see `PARTS`;
tf32 keeps float32 tiles, rounded.

On Nvidia's matrix units a product's result lies in registers just as a left operand does, and as the transpose of a
right one does. So `times_transposed`, L Rᵀ, moves nothing, with symmetric matrices serving as their own transposes,
and a transpose is one `movmatrix` for each 8 × 8 block. Sizes that are no power of two, 48 above all, cost no padding.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.dot import INTERPRETED, round_tf32

# mypy: disable-error-code="no-untyped-def,assignment"
# Triton grows tuples by adding them, and its branches are statements.
# ruff: noqa: RUF005


PARTS = {"bf16": 1, "bf16x3": 2, "bf16x6": 3, "fp16": 1, "tf32": 1}
"""FORMATs of operands, by the numbers whose sum is a float32."""


@triton.constexpr_function
def parts_of(form):
    """PARTS of a FORMAT, for a kernel."""
    return PARTS[form]


@triton.jit
def round_bf16(x):
    """float32 rounded to the 7-bit mantissa of bfloat16, ties away from 0, in integers: numbers converted there and
    back go one by one through a slow unit, numbers already rounded two at a time through a fast one."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x8000) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def operand(x, FORMAT: tl.constexpr):
    """The tiles of `x`, rounded to FORMAT or split into its parts."""
    out = ()
    if FORMAT == "tf32":
        for tile in tl.static_range(len(x)):
            out = out + (round_tf32(x[tile]),)
    else:
        parts: tl.constexpr = parts_of(FORMAT)
        rest = x
        for part in tl.static_range(parts):
            left = ()
            for tile in tl.static_range(len(x)):
                if part == parts - 1:
                    rounded = rest[tile]
                else:
                    rounded = round_bf16(rest[tile])
                    left = left + (rest[tile] - rounded,)
                rounded = rounded.to(tl.float16 if FORMAT == "fp16" else tl.bfloat16)
                # The interpreter has no arithmetic of 16 bits, but rounds to them.
                out = out + (rounded.to(tl.float32) if INTERPRETED else rounded,)
            rest = left
    return out


@triton.jit
def _transposed_tile(x):
    if INTERPRETED or x.dtype == tl.float32:
        out = tl.trans(x)
    else:
        blocks = tl.inline_asm_elementwise(
            "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;",
            "=r,r",
            [x],
            dtype=x.dtype,
            is_pure=True,
            pack=2,
        )
        # Each 8 x 8 block is transposed in its place; the two off the diagonal change theirs.
        out = tl.reshape(tl.permute(tl.reshape(blocks, [2, 8, 2, 8]), [2, 1, 0, 3]), [16, 16])
    return out


@triton.jit
def transposed(x, N: tl.constexpr):
    """The transpose of an operand."""
    out = ()
    for part in tl.static_range(len(x) // (N * N)):
        for i in tl.static_range(N):
            for j in tl.static_range(N):
                out = out + (_transposed_tile(x[part * N * N + j * N + i]),)
    return out


@triton.jit
def _accumulate(left, right, total, FORMAT: tl.constexpr):
    right = tl.trans(right)
    if INTERPRETED:
        total = tl.dot(left, right, total, input_precision="ieee")
    elif FORMAT == "tf32":
        total = tl.dot(left, right, total, input_precision="tf32")
    else:
        total = tl.dot(left, right, total)
    return total


@triton.jit
def _tile(left, right, start, i: tl.constexpr, j: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    parts: tl.constexpr = parts_of(FORMAT)
    total = tl.zeros([16, 16], tl.float32) if len(start) == 0 else start[0]
    # Small products first.
    for order in tl.static_range(parts):
        for p in tl.static_range(parts - order):
            for k in tl.static_range(N):
                one = left[(p * N + i) * N + k]
                other = right[((parts - 1 - order - p) * N + j) * N + k]
                total = _accumulate(one, other, total, FORMAT)
    return total


@triton.jit
def times_transposed(left, right, start, N: tl.constexpr, FORMAT: tl.constexpr):
    """start + L Rᵀ of two operands; `start` a matrix, or () for zeros.

    Products of parts that float32 would not see are left out: hi hi, hi lo, lo hi of two parts, and so on.
    """
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            mine = () if len(start) == 0 else (start[i * N + j],)
            out = out + (_tile(left, right, mine, i, j, N, FORMAT),)
    return out


@triton.jit
def symmetric_times(left, right, start, N: tl.constexpr, FORMAT: tl.constexpr):
    """As `times_transposed` where the sum is symmetric: tiles below the diagonal are not computed, and hold their
    mirror images' numbers untransposed. For `symmetric_operand`."""
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            if i > j:
                out = out + (out[j * N + i],)
            else:
                mine = () if len(start) == 0 else (start[i * N + j],)
                out = out + (_tile(left, right, mine, i, j, N, FORMAT),)
    return out


@triton.jit
def symmetric_operand(x, N: tl.constexpr, FORMAT: tl.constexpr):
    """The operand of a symmetric matrix, from its tiles on and above the diagonal."""
    out = operand(x, FORMAT)
    whole = ()
    for part in tl.static_range(len(out) // (N * N)):
        for i in tl.static_range(N):
            for j in tl.static_range(N):
                tile = out[part * N * N + i * N + j]
                whole = whole + (_transposed_tile(tile) if i > j else tile,)
    return whole


@triton.jit
def combine(a, x, b, y):
    """a x + b y of two numbers and two matrices or vectors."""
    out = ()
    for tile in tl.static_range(len(x)):
        out = out + (a * x[tile] + b * y[tile],)
    return out


@triton.jit
def scaled(a, x):
    """a x of a number and a matrix or vector."""
    out = ()
    for tile in tl.static_range(len(x)):
        out = out + (a * x[tile],)
    return out


@triton.jit
def inner(x, y):
    """The sum of the entries' products of two matrices."""
    total = x[0] * y[0]
    for tile in tl.static_range(1, len(x)):
        total += x[tile] * y[tile]
    return tl.sum(tl.sum(total, axis=1), axis=0)


@triton.jit
def add_outer(x, column, row, N: tl.constexpr):
    """x + column rowᵀ; vectors are tuples of N pieces of 16."""
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            out = out + (x[i * N + j] + column[i][:, None] * row[j][None, :],)
    return out


@triton.jit
def times_vector(x, row, N: tl.constexpr):
    """X r, a vector along the rows of X."""
    out = ()
    for i in tl.static_range(N):
        total = x[i * N] * row[0][None, :]
        for j in tl.static_range(1, N):
            total += x[i * N + j] * row[j][None, :]
        out = out + (tl.sum(total, axis=1),)
    return out


@triton.jit
def vector_times(column, x, N: tl.constexpr):
    """Xᵀ c, a vector along the columns of X."""
    out = ()
    for j in tl.static_range(N):
        total = x[j] * column[0][:, None]
        for i in tl.static_range(1, N):
            total += x[i * N + j] * column[i][:, None]
        out = out + (tl.sum(total, axis=0),)
    return out
