"""Modular arithmetic without brackets: the value of a sum of products of digits, modulo m.

Published forms: xlstm and unlocking_state_tracking (the generator Mamba-3, appendix D, trains on; with
padding, the answer asked for at "="), after "Neural networks and the Chomsky hierarchy" (Delétang et al.,
2023).

Legend: R lanes, B rows, N digits of the longest row, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_ROW = 0
_PAD, _PLUS, _MINUS, _TIMES, _EQUALS, _ZERO = range(6)
MAX_MODULUS = 1024


@dataclass(frozen=True, kw_only=True)
class ModularArithmetic(Task):
    """Uniform digits and operators in turn, then "="; its one target, the value modulo `modulus`, is there.

    Products come before sums and differences, which are taken from left to right. Tokens are PAD 0, + 1, − 2,
    × 3, = 4 and the digits from 5 on, with `multiply` or without.

    A length counts, as the published sizes do, the row with its answer, which is never read: a row of size s
    (always odd) is (s − 1) / 2 digits, the operators between them and "=". Sizes are the odd numbers from
    `min_length` to the length, each as likely; `inputs` has length − 1 tokens. `peer_compat` counts an even
    `min_length` as the odd number before it, as the published generators do, so that their rows of 40 … 256
    have sizes 39 … 255 and those of 40 alone size 39.

        ModularArithmetic(min_length=3) at 10
            in    4 * 2 = _ _ _ _ _
            out   · · · 3 · · · · ·

        ModularArithmetic(modulus=10, multiply=False) at 13
            in    8 - 7 + 8 + 3 - 0 - 5 =
            out   · · · · · · · · · · · 7
    """

    modulus: Annotated[int, "digits and answers are 0 … modulus − 1; at most 1024"] = 5
    multiply: Annotated[bool, "whether * is among the operators, beside + and -"] = True
    min_length: Annotated[
        int | None, "rows have odd sizes from this one up to the length, padded; None: all the longest"
    ] = None
    peer_compat: Annotated[bool, "an even min_length stands for the odd size before it, as published"] = False

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= MAX_MODULUS:
            raise ValueError(f"modular_arithmetic: modulus is {self.modulus}; use 2 to {MAX_MODULUS}")
        if self.min_length is not None and self.min_length < 3:
            raise ValueError(
                f"modular_arithmetic: min_length is {self.min_length}; use 3 (a digit, '=' and the answer) "
                f"or more"
            )

    @property
    def vocab_size(self) -> int:
        return _ZERO + self.modulus

    @property
    def num_answers(self) -> int:
        return self.modulus

    @property
    def kinds(self) -> dict[str, range]:
        return {
            "pad": range(1),
            "operator": range(_PLUS, _EQUALS),
            "equals": range(_EQUALS, _ZERO),
            "digit": range(_ZERO, self.vocab_size),
        }

    def describe(self, token: int) -> str:
        return "_+-*="[token] if token < _ZERO else str(token - _ZERO)

    def check_length(self, length: int) -> None:
        least = self.min_length or 3
        if length < least or 2 * self._least_digits(length) + 1 > length:
            least += not (least % 2 or self.peer_compat)
            raise ValueError(f"modular_arithmetic: length {length} is too short; use length >= {least}")

    def _least_digits(self, length: int) -> int:
        """Digits of the shortest rows; a size has one more than two for each."""
        if self.min_length is None:
            return (length - 1) // 2
        return (self.min_length - self.peer_compat) // 2

    def sample(self, rows: Rows, length: int) -> Batch:
        from statelab.tasks.digits import digits, words_for
        from statelab.tasks.rows import below

        self.check_length(length)
        N, least = (length - 1) // 2, self._least_digits(length)
        operators = 3 if self.multiply else 2
        counts = 1, words_for(N, self.modulus), words_for(N, operators)
        size, digit, operator = rows.words(_ROW, sum(counts)).split(counts, -1)
        return self.lay_out(
            digits(digit, N, self.modulus),
            _PLUS + digits(operator, N, operators),
            least + below(size[..., 0], N - least + 1),
            length - 1,
        )

    def lay_out(self, digit_RBN: Tensor, operator_RBN: Tensor, count_RB: Tensor, width: int) -> Batch:
        """Rows of `width` tokens, 2 N or one more, of the first `count` of these digits.

        All int64; digits lie in [0, modulus), operators are tokens, the one at i stands behind digit i. What
        is behind the count is not looked at.
        """
        import torch

        N = digit_RBN.shape[-1]
        place_N, last_RB1 = torch.arange(N, device=digit_RBN.device), count_RB[..., None] - 1
        shown_RBN = place_N <= last_RB1
        inputs = digit_RBN.new_empty((*count_RB.shape, width))
        inputs[..., 2 * N :] = _PAD
        inputs[..., 0 : 2 * N : 2] = (digit_RBN + _ZERO).mul_(shown_RBN)
        inputs[..., 1 : 2 * N : 2] = torch.where(place_N == last_RB1, _EQUALS, operator_RBN).mul_(shown_RBN)
        answer_RB1 = _value(inputs, self.modulus) + _ZERO
        targets = torch.full_like(inputs, IGNORE).scatter_(-1, 2 * last_RB1 + 1, answer_RB1)
        return Batch(inputs=inputs, targets=targets, loss_targets=targets, length=2 * count_RB)


def _value(tokens_RBT: Tensor, modulus: int) -> Tensor:
    """The values in [0, modulus) of these rows, int64 `[R, B, 1]`.

    Neighbouring spans of factors are joined two by two, in log2(N) passes. 32 bits hold products of two
    numbers up to MAX_MODULUS and the sum of as many terms as a row may have.
    """
    import torch

    N = tokens_RBT.shape[-1] // 2
    shape = (*tokens_RBT.shape[:-1], 1 << (N - 1).bit_length())
    before = tokens_RBT.new_full(shape, _PAD, dtype=torch.int32)
    factor = tokens_RBT.new_full(shape, 1, dtype=torch.int32)
    before[..., 0] = _TIMES
    before[..., 1:N] = tokens_RBT[..., 1 : 2 * N - 1 : 2]
    factor[..., :N] = tokens_RBT[..., 0 : 2 * N : 2] - _ZERO
    # Behind "=" and behind padding there is no factor, which is a factor of 1.
    factor = torch.where((before >= _PLUS) & (before <= _TIMES), factor, 1)
    minus = before == _MINUS
    factor = torch.where(minus, modulus - factor, factor)
    begins = minus | (before == _PLUS)
    span = _Span(begins, factor.masked_fill(begins, 1), factor, torch.zeros_like(factor))
    while span.head.shape[-1] > 1:
        span = _joined(_Span(*(x[..., ::2] for x in span)), _Span(*(x[..., 1::2] for x in span)), modulus)
    value = torch.where(span.begins, span.head + span.between + span.tail, span.head)
    return value.remainder_(modulus).long()


class _Span(NamedTuple):
    """What neighbouring factors, a factor after − with its sign, do to a value."""

    begins: Tensor
    """Whether a term begins among them."""
    head: Tensor
    """The product of those that belong to the term before them."""
    tail: Tensor
    """The product of those of their last term: `head`, if none begins."""
    between: Tensor
    """The sum of the terms that both begin and end among them."""


def _joined(left: _Span, right: _Span, modulus: int) -> _Span:
    import torch

    across = (left.tail * right.head).remainder_(modulus)
    between = (across * (left.begins & right.begins)).add_(left.between).add_(right.between)
    head = torch.where(left.begins, left.head, across)
    return _Span(left.begins | right.begins, head, torch.where(right.begins, right.tail, across), between)
