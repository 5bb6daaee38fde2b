"""Parity: is the number of ones odd? With a modulus m, what is the sum of digits below m, modulo m?

Two published forms. `answer="last"`: one answer a row, asked for at the last bit, as in xlstm and
unlocking_state_tracking (the generator Mamba-3, appendix D, trains on), whose vocabulary of m + 1 tokens
makes parity the sum modulo m. `answer="running"`: the parity of the prefix at every position (zoology's
`cumulative_parity`).

Lengths count bits, which are all the input tokens there are. xlstm's sizes count the answer as well, whose
token is never read, so its sizes 3 … 40 are `min_length=2` at length 39; zoology's cumulative length T is
length T − 1.

Legend: R lanes, B rows, T length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_BITS, _SIZE = range(2)
_PAD = 0
MAX_MODULUS = 1024


@dataclass(frozen=True, kw_only=True)
class Parity(Task):
    """Fair bits and the parity of the ones among them; nothing but the answers is ever trained on.

    With `answer="last"` tokens are PAD 0 and the bits 1 and 2; the one target, at the last bit, is the bit
    token of the parity. With `answer="running"` tokens and targets are the bits 0 and 1 themselves.

    With `modulus` m above 2, uniform digits 0 … m − 1 stand for the bits, tokens 1 … m behind PAD or 0 … m − 1
    without it, and asked for is their sum modulo m.

        Parity(min_length=3) at 8
            in    1 0 1 0 _ _ _ _
            out   · · · 0 · · · ·

        Parity(answer='running') at 8
            in    1 0 1 0 1 0 1 1
            out   1 1 0 0 1 1 0 1
    """

    modulus: Annotated[int, "digits and answers are 0 … modulus − 1, bits at 2; at most 1024"] = 2
    answer: Annotated[Literal["last", "running"], "asked for at the last bit, or after every bit"] = "last"
    min_length: Annotated[
        int | None, "rows have from this many bits up to the length, padded behind; None: all have the length"
    ] = None

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= MAX_MODULUS:
            raise ValueError(f"parity: modulus is {self.modulus}; use 2 to {MAX_MODULUS}")
        if self.answer not in ("last", "running"):
            raise ValueError(f"parity: answer is {self.answer!r}; use 'last' or 'running'")
        if self.min_length is None:
            return
        if self.answer == "running":
            raise ValueError("parity: min_length pads rows, which answer='running' does not; leave it out")
        if self.min_length < 1:
            raise ValueError(f"parity: min_length is {self.min_length} bits; use 1 or more")

    @property
    def vocab_size(self) -> int:
        return self._zero + self.modulus

    @property
    def num_answers(self) -> int:
        return self.modulus

    @property
    def kinds(self) -> dict[str, range]:
        kinds = {"pad": range(1)} if self.answer == "last" else {}
        return kinds | {"bit" if self.modulus == 2 else "digit": range(self._zero, self.vocab_size)}

    @property
    def _zero(self) -> int:
        """The token of digit 0, behind padding where there may be some."""
        return 1 if self.answer == "last" else 0

    def describe(self, token: int) -> str:
        return str(token - self._zero) if token >= self._zero else "_"

    def check_length(self, length: int) -> None:
        least = self.min_length or 1
        if length < least:
            raise ValueError(f"parity: length {length} is too short; use length >= {least}")

    def sample(self, rows: Rows, length: int) -> Batch:
        import torch

        self.check_length(length)
        digits = self._digits(rows, length)
        if self.answer == "running":
            return running(digits, self.modulus)
        least = length if self.min_length is None else self.min_length
        if least == length:
            size = torch.full(digits.shape[:-1], length, device=rows.device)
        else:
            size = least + rows.integers(_SIZE, 1, length - least + 1)[..., 0]
        return last(digits, size, self.modulus)

    def _digits(self, rows: Rows, length: int) -> Tensor:
        from statelab.tasks.digits import digits, words_for

        if self.modulus == 2:
            return rows.bits(_BITS, length)
        return digits(rows.words(_BITS, words_for(length, self.modulus)), length, self.modulus)


def running(digits_RBT: Tensor, modulus: int = 2) -> Batch:
    """Rows that ask for the sum modulo `modulus` after every one of these digits, for bits their parity."""
    import torch

    sum_RBT = digits_RBT.cumsum(-1)
    # The mask, for bits, is three times as fast.
    sum_RBT = sum_RBT.bitwise_and_(1) if modulus == 2 else sum_RBT.remainder_(modulus)
    length_RB = torch.full(digits_RBT.shape[:-1], digits_RBT.shape[-1], device=digits_RBT.device)
    return Batch(inputs=digits_RBT.contiguous(), targets=sum_RBT, loss_targets=sum_RBT, length=length_RB)


def last(digits_RBT: Tensor, size_RB: Tensor, modulus: int = 2) -> Batch:
    """Rows that ask, at the last of the first `size` of these digits, for the sum of those, as `running`."""
    import torch

    last_RB1 = size_RB[..., None] - 1
    shown_RBT = torch.arange(digits_RBT.shape[-1], device=digits_RBT.device) <= last_RB1
    inputs_RBT = torch.where(shown_RBT, digits_RBT + 1, _PAD)
    answer_RB1 = (digits_RBT * shown_RBT).sum(-1, keepdim=True).remainder_(modulus).add_(1)
    targets_RBT = torch.full_like(inputs_RBT, IGNORE).scatter_(-1, last_RB1, answer_RB1)
    return Batch(inputs=inputs_RBT, targets=targets_RBT, loss_targets=targets_RBT, length=size_RB)
