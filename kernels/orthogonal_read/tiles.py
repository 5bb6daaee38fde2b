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
def _split(x):
    """float32 rounded to bfloat16, and what that leaves; two numbers at a time, as one alone is converted by a slow
    unit."""
    if INTERPRETED:
        # The interpreter's own conversion cuts off.
        bits = x.to(tl.int32, bitcast=True)
        rounded = ((bits + 0x8000) & -0x10000).to(tl.float32, bitcast=True)
        left = x - rounded
    else:
        rounded, left = tl.inline_asm_elementwise(
            """{
            .reg .b32 even, odd;
            cvt.rn.bf16x2.f32 $0, $4, $3;
            shl.b32 even, $0, 16;
            and.b32 odd, $0, 0xffff0000;
            sub.f32 $1, $3, even;
            sub.f32 $2, $4, odd;
            }""",
            "=&r,=&r,=&r,r,r",
            [x],
            dtype=(tl.bfloat16, tl.float32),
            is_pure=True,
            pack=2,
        )
    return rounded, left


@triton.jit
def operand(x, FORMAT: tl.constexpr):
    """The tiles of `x`, rounded to FORMAT or split into its parts."""
    out = ()
    if FORMAT == "tf32":
        for tile in tl.static_range(len(x)):
            out = out + (round_tf32(x[tile]),)
    else:
        rest = x
        for _ in tl.static_range(parts_of(FORMAT) - 1):
            left = ()
            for tile in tl.static_range(len(x)):
                rounded, leaves = _split(rest[tile])
                out, left = out + (rounded,), left + (leaves,)
            rest = left
        for tile in tl.static_range(len(x)):
            rounded = rest[tile].to(tl.float16 if FORMAT == "fp16" else tl.bfloat16)
            # The interpreter has no arithmetic of 16 bits, but rounds to them.
            out = out + (rounded.to(tl.float32) if INTERPRETED else rounded,)
    return out


@triton.jit
def transposed_tile(x):
    """The transpose of a tile of an operand."""
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
                out = out + (transposed_tile(x[part * N * N + j * N + i]),)
    return out


@triton.jit
def _accumulate(left, right, total, FORMAT: tl.constexpr):
    if INTERPRETED:
        total = tl.dot(left, tl.trans(right), total, input_precision="ieee")
    elif FORMAT == "tf32":
        total = tl.dot(left, tl.trans(right), total, input_precision="tf32")
    else:
        # Written as `tl.trans`, Triton would have it by way of shared memory.
        turned = tl.reshape(tl.permute(tl.reshape(right, [2, 8, 2, 8]), (2, 3, 0, 1)), [16, 16])
        total = tl.dot(left, turned, total)
    return total


@triton.jit
def row_of(x, i: tl.constexpr, N: tl.constexpr):
    """The i-th row of an operand's tiles, of each of its parts."""
    out = ()
    for part in tl.static_range(len(x) // (N * N)):
        for k in tl.static_range(N):
            out = out + (x[(part * N + i) * N + k],)
    return out


@triton.jit
def tile_times(row, right, start, j: tl.constexpr, N: tl.constexpr, FORMAT: tl.constexpr):
    """start + the j-th tile of L Rᵀ in a `row_of` L."""
    parts: tl.constexpr = parts_of(FORMAT)
    total = tl.zeros([16, 16], tl.float32) if len(start) == 0 else start[0]
    # Small products first.
    for order in tl.static_range(parts):
        for p in tl.static_range(parts - order):
            for k in tl.static_range(N):
                other = right[((parts - 1 - order - p) * N + j) * N + k]
                total = _accumulate(row[p * N + k], other, total, FORMAT)
    return total


@triton.jit
def times_transposed(left, right, start, N: tl.constexpr, FORMAT: tl.constexpr):
    """start + L Rᵀ of two operands; `start` a matrix, or () for zeros.

    Products of parts that float32 would not see are left out: hi hi, hi lo, lo hi of two parts, and so on.
    """
    out = ()
    for i in tl.static_range(N):
        row = row_of(left, i, N)
        for j in tl.static_range(N):
            mine = () if len(start) == 0 else (start[i * N + j],)
            out = out + (tile_times(row, right, mine, j, N, FORMAT),)
    return out


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
