"""Cycle navigation: where on a circle do these moves lead?

From "Neural networks and the Chomsky hierarchy" (Delétang et al., 2023), with the tokens and padding of
xlstm: addition modulo the circle's length, of which parity is the case of two places and no way back.

Lengths count moves, which are all the input tokens there are; xlstm's sizes count the answer as well, whose
token is never read, so its sizes 3 … 40 are `min_length=2` at length 39.

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

_ROW = 0
_PAD = 0
MAX_CYCLE = 1024


@dataclass(frozen=True, kw_only=True)
class CycleNavigation(Task):
    """Uniform moves on a circle of `cycle` places, from place 0; asked for is the place reached.

    It is asked for at the last move, or with `answer="running"` after every one. Tokens are PAD 0, the move
    of no step 1, steps forward 2 … `reach` + 1, as many back, and then the places.

        CycleNavigation(min_length=3) at 8
            in    -1 +1 -1 -1  0  _  _  _
            out    ·  ·  ·  · @3  ·  ·  ·

        CycleNavigation(answer='running') at 8
            in    -1 +1 -1 -1  0 -1 -1 -1
            out   @4 @0 @4 @3 @3 @2 @1 @0
    """

    cycle: Annotated[int, "number of places"] = 5
    reach: Annotated[int, "a move is of up to this many places either way"] = 1
    answer: Annotated[Literal["last", "running"], "asked for at the last move, or after every one"] = "last"
    min_length: Annotated[
        int | None,
        "rows have from this many moves up to the length, padded behind; None: all have the length",
    ] = None

    def __post_init__(self) -> None:
        if not 2 <= self.cycle <= MAX_CYCLE:
            raise ValueError(f"cycle_navigation: cycle is {self.cycle} places; use 2 to {MAX_CYCLE}")
        if not 1 <= self.reach < self.cycle:
            raise ValueError(
                f"cycle_navigation: reach is {self.reach} of {self.cycle} places; use 1 to {self.cycle - 1}"
            )
        if self.answer not in ("last", "running"):
            raise ValueError(f"cycle_navigation: answer is {self.answer!r}; use 'last' or 'running'")
        if self.min_length is not None and self.min_length < 1:
            raise ValueError(f"cycle_navigation: min_length is {self.min_length} moves; use 1 or more")

    @property
    def vocab_size(self) -> int:
        return self._first_place + self.cycle

    @property
    def num_answers(self) -> int:
        return self.cycle

    @property
    def kinds(self) -> dict[str, range]:
        place = self._first_place
        return {"pad": range(1), "move": range(1, place), "place": range(place, self.vocab_size)}

    @property
    def _first_place(self) -> int:
        return 2 * self.reach + 2

    def describe(self, token: int) -> str:
        if token == _PAD:
            return "_"
        if token >= self._first_place:
            return f"@{token - self._first_place}"
        steps = token - 1 if token <= self.reach + 1 else self.reach + 1 - token
        return f"{steps:+}" if steps else "0"

    def check_length(self, length: int) -> None:
        least = self.min_length or 1
        if length < least:
            raise ValueError(f"cycle_navigation: length {length} is too short; use length >= {least}")

    def sample(self, rows: Rows, length: int) -> Batch:
        from statelab.tasks.digits import digits, words_for
        from statelab.tasks.rows import below

        self.check_length(length)
        least = length if self.min_length is None else self.min_length
        moves = 2 * self.reach + 1
        size, words = rows.words(_ROW, 1 + words_for(length, moves)).split((1, words_for(length, moves)), -1)
        size_RB = least + below(size[..., 0], length - least + 1)
        return self.lay_out(digits(words, length, moves) + 1, size_RB)

    def lay_out(self, moves_RBT: Tensor, size_RB: Tensor) -> Batch:
        """Rows of the first `size` of these moves, which are tokens; all int64."""
        import torch

        last_RB1 = size_RB[..., None] - 1
        shown_RBT = torch.arange(moves_RBT.shape[-1], device=moves_RBT.device) <= last_RB1
        steps_RBT = torch.where(moves_RBT <= self.reach + 1, moves_RBT - 1, self.reach + 1 - moves_RBT)
        place_RBT = steps_RBT.cumsum(-1).remainder_(self.cycle).add_(self._first_place)
        if self.answer == "running":
            targets_RBT = place_RBT.masked_fill_(~shown_RBT, IGNORE)
        else:
            targets_RBT = torch.full_like(moves_RBT, IGNORE)
            targets_RBT.scatter_(-1, last_RB1, place_RBT.gather(-1, last_RB1))
        inputs_RBT = moves_RBT * shown_RBT
        return Batch(inputs=inputs_RBT, targets=targets_RBT, loss_targets=targets_RBT, length=size_RB)
