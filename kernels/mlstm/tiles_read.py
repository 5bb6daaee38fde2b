"""What every kernel of the chunked mLSTM reads of a chunk, and what it makes of the gates, in Triton.

Logarithms are to base 2: exp2 is what the hardware has. With F the log forget gates summed up to step i of a chunk and
m its stabiliser (0: the chunk's start), all that is ever exponentiated comes from two vectors,

    x_j = ĩ_j − F_j,    M_i = max(m_0, max_{j ≤ i} x_j),    m_i = F_i + M_i:

step j weighs e^{x_j − M_i} in the memory of step i and the start e^{m_0 − M_i}; neither can overflow.
"""

from __future__ import annotations

import triton
import triton.language as tl

from statelab.kernels.steps import LOG2E

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _latest_maximum(x, at, y, later):  # type: ignore[no-untyped-def]
    """The larger value and its step; of equals the later one."""
    return tl.where(y >= x, y, x), tl.where(y >= x, later, at)


@triton.jit
def _log2_sigmoid(x):  # type: ignore[no-untyped-def]
    """log₂ σ(x) = (min(x, 0) − log(1 + e)) log₂ e, e = e^−|x|; near 1 a GPU's log has no such exactness.

    log(1 + e) = 2 artanh(s), s = e / (2 + e) ≤ 1/3: its series to s¹⁷.
    """
    e = tl.exp2(-tl.abs(x) * LOG2E)
    s = e / (2.0 + e)
    z = s * s
    series = 1.0 / 15 + z * (1.0 / 17)
    series = 1.0 / 11 + z * (1.0 / 13 + z * series)
    series = 1.0 / 7 + z * (1.0 / 9 + z * series)
    series = 1.0 / 3 + z * (1.0 / 5 + z * series)
    return (tl.minimum(x, 0.0) - 2.0 * s * (1.0 + z * series)) * LOG2E


@triton.jit
def read_gates(input_gate, forget_gate, stride_i, stride_f, steps, live, m_0):  # type: ignore[no-untyped-def]
    """f̃, F, x, M, and for each M the step that set it, −1 for m_0, of `steps` of a chunk, both pointers at its start.

    Steps that are not live forget nothing and write nothing, so that the last of a chunk is its last live one.
    """
    i = tl.load(input_gate + steps * stride_i, mask=live, other=-float("inf")).to(tl.float32) * LOG2E
    f = tl.load(forget_gate + steps * stride_f, mask=live, other=0.0).to(tl.float32)
    F = tl.cumsum(tl.where(live, _log2_sigmoid(f), 0.0), 0)
    x = i - F
    M, at = tl.associative_scan((x, steps), 0, _latest_maximum)
    at = tl.where(m_0 > M, -1, at)
    return f, F, x, tl.maximum(M, m_0), at


@triton.jit
def read_rows(pointer, stride, steps, live, columns, within):  # type: ignore[no-untyped-def]
    """`[L, columns]` in float32, zeros outside."""
    at = pointer + steps[:, None] * stride + columns[None, :]
    return tl.load(at, mask=live[:, None] & within[None, :], other=0.0).to(tl.float32)


@triton.jit
def read_columns(pointer, stride, steps, live, rows, within):  # type: ignore[no-untyped-def]
    """`[rows, L]` in float32, zeros outside: read so, since what is read twice costs less than what is turned."""
    at = pointer + steps[None, :] * stride + rows[:, None]
    return tl.load(at, mask=live[None, :] & within[:, None], other=0.0).to(tl.float32)
