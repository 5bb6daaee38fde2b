"""Modular arithmetic with brackets: the value of a fully bracketed expression of an exact length, modulo m.

The grammar of "Neural networks and the Chomsky hierarchy" (Delétang et al., 2023), in the form of
unlocking_state_tracking (the generator Mamba-3, appendix D, trains on): padded, asked at "=".

An expression of 1 token is a digit d, of 2 −d, of 3 (d), of 4 (−d); one of L ≥ 5 is "(", a left one of
1 … L − 4 tokens, each length as likely, an operator, a right one of what is left, and ")".

Legend: R lanes, B rows, M = R · B, T tokens; N inner expressions (those of L ≥ 5) a row can have, S = 2 N + 1
expressions: the row's and the two parts of each inner one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

MAX_MODULUS = 1024
_ROW = 0
_LEAST = 5
"""The shortest row: −d, "=", its answer and one padding."""
_SYMBOLS = "+-*()=_"
_PLUS, _MINUS, _TIMES, _OPEN, _CLOSE, _EQUALS, _PAD = range(7)


@dataclass(frozen=True, kw_only=True)
class BracketArithmetic(Task):
    """A random expression, then "="; its one target, the value modulo `modulus`, is there.

    Digits and operators are uniform; operators are + and −, and × with `multiply` (which decides how hard the
    task is: unlocking_state_tracking's configurations leave it out, the Chomsky-hierarchy registry has it).
    Tokens are the digits from 0 on, then + − × ( ) = PAD, with `multiply` or without.

    A length counts, as the published sizes do, an expression, "=", its answer, which is never read, and one
    padding; `inputs` has length − 1 tokens. Sizes are uniform from `min_length` to the length, but as
    published those below 5 (−d) count as 5, so that of 3 … 40 three in 38 are. `peer_compat` shows digit 0
    behind "=", where the published wrapper hides the answer under its own padding.

        BracketArithmetic(min_length=3) at 18
            in    ( - 0 - 3 ) = _ _ _ _ _ _ _ _ _ _
            out   · · · · · · 2 · · · · · · · · · ·

        BracketArithmetic(modulus=7, multiply=True) at 15
            in    ( ( ( 1 ) * - 3 ) - 2 ) = _
            out   · · · · · · · · · · · · 2 ·
    """

    modulus: Annotated[int, "digits and answers are 0 … modulus − 1; at most 1024"] = 5
    multiply: Annotated[bool, "whether * is among the operators, beside + and -"] = False
    min_length: Annotated[
        int | None, "rows have sizes from this one up to the length, padded; None: all have the length"
    ] = None
    peer_compat: Annotated[bool, "a digit 0 behind '=', as in unlocking_state_tracking"] = False

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= MAX_MODULUS:
            raise ValueError(f"bracket_arithmetic: modulus is {self.modulus}; use 2 to {MAX_MODULUS}")
        if self.min_length is not None and self.min_length < 1:
            raise ValueError(f"bracket_arithmetic: min_length is {self.min_length}; use 1 or more")

    @property
    def vocab_size(self) -> int:
        return self.modulus + len(_SYMBOLS)

    @property
    def num_answers(self) -> int:
        return self.modulus

    @property
    def kinds(self) -> dict[str, range]:
        m = self.modulus
        return {
            "digit": range(m),
            "operator": range(m + _PLUS, m + _OPEN),
            "bracket": range(m + _OPEN, m + _EQUALS),
            "equals": range(m + _EQUALS, m + _PAD),
            "pad": range(m + _PAD, self.vocab_size),
        }

    def describe(self, token: int) -> str:
        return str(token) if token < self.modulus else _SYMBOLS[token - self.modulus]

    def check_length(self, length: int) -> None:
        least = max(self.min_length or _LEAST, _LEAST)
        if length < least:
            raise ValueError(f"bracket_arithmetic: length {length} is too short; use length >= {least}")

    def sample(self, rows: Rows, length: int) -> Batch:
        from statelab.tasks.bracket_trees import most_inner
        from statelab.tasks.digits import digits, words_for
        from statelab.tasks.rows import below

        self.check_length(length)
        N, operators = most_inner(length - 3), 3 if self.multiply else 2
        S, least = 2 * N + 1, length if self.min_length is None else self.min_length
        counts = 1, N, words_for(N, operators), words_for(S, self.modulus)
        size, split, operator, digit = rows.words(_ROW, sum(counts)).split(counts, -1)
        size_RB = (least + below(size[..., 0], length - least + 1)).clamp_(min=_LEAST)
        return self.lay_out(
            size_RB, split, digits(operator, N, operators), digits(digit, S, self.modulus), length
        )

    def lay_out(self, size_RB: Tensor, split: Tensor, operator: Tensor, digit: Tensor, length: int) -> Batch:
        """The rows that these draws make, all int64.

        `split` `[R, B, N]`, words in [0, 2^32), place the operators and `operator` `[R, B, N]`, 0 to 2 for
        + − ×, are those of the inner expressions, in the order of `grow`; `digit` `[R, B, S]` are the digits
        of all expressions that are not inner, and not looked at for those that are.
        """
        import torch

        from statelab.tasks.bracket_trees import evaluate, grow

        split_NM, operator_NM, digit_SM = (x.flatten(0, 1).t().contiguous() for x in (split, operator, digit))
        size_M = size_RB.flatten()
        start_SM, length_SM, slot_SM = grow(size_M - 3, split_NM)
        answer_M = evaluate(length_SM, slot_SM, operator_NM, digit_SM, self.modulus)
        inputs_TM = self._write(start_SM, length_SM, operator_NM, digit_SM, length - 1)
        equals_1M = size_M[None] - 3
        inputs_TM.scatter_(0, equals_1M, self.modulus + _EQUALS)
        if self.peer_compat:
            inputs_TM.scatter_(0, equals_1M + 1, 0)
        inputs = inputs_TM.t().contiguous().view(*size_RB.shape, -1)
        targets = torch.full_like(inputs, IGNORE)
        targets.scatter_(-1, size_RB[..., None] - 3, answer_M.view(*size_RB.shape, 1))
        return Batch(inputs=inputs, targets=targets, loss_targets=targets, length=size_RB - 2)

    def _write(
        self, start_SM: Tensor, length_SM: Tensor, operator_NM: Tensor, digit_SM: Tensor, width: int
    ) -> Tensor:
        """The tokens of the expressions, `[T, M]`, padded to T = width."""
        import torch

        # What is not to be written goes to one more place, which is cut off.
        out = start_SM.new_full((width + 1, start_SM.shape[1]), self.modulus + _PAD)

        def put(place: Tensor, where: Tensor, token: Tensor | int) -> None:
            out.scatter_(0, torch.where(where, place, width), token)  # type: ignore[arg-type]

        bracketed = length_SM >= 3
        put(start_SM, bracketed, self.modulus + _OPEN)
        put(start_SM + length_SM - 1, bracketed, self.modulus + _CLOSE)
        leaf = (length_SM >= 1) & (length_SM <= 4)
        middle_SM = start_SM + (length_SM >> 1)
        put(middle_SM, leaf, digit_SM)
        put(middle_SM - 1, leaf & (length_SM % 2 == 0), self.modulus + _MINUS)
        put(start_SM[2::2] - 1, length_SM[2::2] > 0, operator_NM + self.modulus)
        return out[:-1]
