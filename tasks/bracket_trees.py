"""The trees of fully bracketed expressions: grown from the whole to the parts, all rows at a time.

Each row's inner expressions wait in a queue. A step takes the next of every row, splits it and puts what is
inner of its parts at the end. There are N steps, since the deepest expression, whose parts are single digits
but for one, has one inner expression at each depth; so steps over depths would be no fewer.

Legend: M rows, N inner expressions (of 5 tokens or more) a row can have, S = 2 N + 1 expressions: the whole
one and the two parts of each inner one; Q = N + S slots.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MINUS, _TIMES = 1, 2


def most_inner(length: int) -> int:
    """N for expressions of this length: each inner one adds two brackets, an operator and a digit to one.

    At least 1, which spares the rest empty tensors.
    """
    return max(1, (length - 1) // 4)


def grow(length_M: Tensor, split_NM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Start, length and slot `[S, M]` of the expressions of each row, given the length of the whole.

    Expression 0 is the whole one; 1 + 2 i and 2 + 2 i are the parts of inner expression i, and inner ones are
    counted in this same order. The parts of those that a row does not have are of length 0. The slot of inner
    expression i is i; that of an expression j that is none is N + j.
    """
    N, M = split_NM.shape
    S, device = 2 * N + 1, split_NM.device
    # L tokens from s on are held as s and s + L − 4, of which the second is greater where they are inner.
    spans_S2M = torch.zeros((S, 2, M), dtype=torch.int64, device=device)
    queue_Q2M = torch.zeros((N + S, 2, M), dtype=torch.int64, device=device)
    slot_SM = torch.arange(N, N + S, device=device)[:, None].repeat(1, M)
    spans_S2M[0, 1] = length_M - 4
    last_M = _enqueue(spans_S2M[:1], slot_SM[:1], queue_Q2M, torch.full_like(length_M, -1))
    parts = zip(spans_S2M[1:].split(2), slot_SM[1:].split(2), queue_Q2M[:N].unbind(), split_NM, strict=True)
    # Made on the device: a copy from the host could not be captured in a graph.
    shift_41 = torch.stack([torch.full((1,), shift, device=device) for shift in (1, -2, 3, -1)])
    for span_22M, slot_2M, (start_M, end_M), word_M in parts:
        split_M = (end_M - start_M).mul_(word_M).bitwise_right_shift_(32).add_(start_M)
        # The left part starts one further and ends before the operator, the right part starts behind it.
        span_22M.view(4, M).copy_(torch.stack([start_M, split_M, split_M, end_M]).add_(shift_41))
        last_M = _enqueue(span_22M, slot_2M, queue_Q2M, last_M)
    start_SM, end_SM = spans_S2M.unbind(1)
    here_NM = torch.arange(N, device=device)[:, None] <= last_M
    length_SM = end_SM - start_SM + 4
    length_SM[1:].view(N, 2, M).mul_(here_NM[:, None])
    return start_SM, length_SM, slot_SM


def _enqueue(span_K2M: Tensor, slot_KM: Tensor, queue_Q2M: Tensor, last_M: Tensor) -> Tensor:
    """Put expressions where they belong, inner ones behind the last one there is; the place of the last."""
    inner_KM = span_K2M[:, 1] > span_K2M[:, 0]
    place_KM = inner_KM.cumsum(0).add_(last_M)
    slot_KM.copy_(torch.where(inner_KM, place_KM, slot_KM))
    queue_Q2M.scatter_(0, slot_KM[:, None].expand_as(span_K2M), span_K2M)
    return place_KM[-1]


def evaluate(
    length_SM: Tensor, slot_SM: Tensor, operator_NM: Tensor, digit_SM: Tensor, modulus: int
) -> Tensor:
    """The values of the whole expressions, in [0, modulus), `[M]`: inner ones last to first."""
    N = operator_NM.shape[0]
    negative_SM = (length_SM == 2) | (length_SM == 4)
    value_QM = torch.cat([operator_NM, torch.where(negative_SM, modulus - digit_SM, digit_SM)])
    times_NM, sign_NM = operator_NM == _TIMES, 1 - 2 * (operator_NM == _MINUS).long()
    inner = zip(value_QM[:N], slot_SM[1:].split(2), times_NM, sign_NM, strict=True)
    for value_M, slot_2M, times_M, sign_M in reversed(list(inner)):
        left_M, right_M = value_QM.gather(0, slot_2M)
        found_M = torch.where(times_M, left_M * right_M, torch.addcmul(left_M, sign_M, right_M))
        torch.remainder(found_M, modulus, out=value_M)
    return value_QM.gather(0, slot_SM[:1])[0].remainder_(modulus)
