"""Even pairs: do the pairs 01 and 10 come an even number of times together?

They do if and only if the first bit equals the last, so a model needs to keep one bit for the whole row. From
"Neural networks and the Chomsky hierarchy" (Delétang et al., 2023), with the tokens and padding of xlstm.

Lengths count bits, which are all the input tokens there are; xlstm's sizes count the answer as well, whose
token is never read, so its sizes 3 … 40 are `min_length=2` at length 39.

Legend: R lanes, B rows, T length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_BITS, _SIZE = range(2)
_LEAST = 2


@dataclass(frozen=True, kw_only=True)
class EvenPairs(Task):
    """Fair bits; asked for at the last one is 0 if it equals the first bit and 1 if it does not.

    Tokens are PAD 0 and the bits 1 and 2, and answers are bits.

        EvenPairs(min_length=3) at 8
            in    1 0 1 0 _ _ _ _
            out   · · · 1 · · · ·

        EvenPairs() at 10
            in    1 0 1 0 1 0 1 1 0 0
            out   · · · · · · · · · 1
    """

    min_length: Annotated[
        int | None, "rows have from this many bits up to the length, padded behind; None: all have the length"
    ] = None

    def __post_init__(self) -> None:
        if self.min_length is not None and self.min_length < _LEAST:
            raise ValueError(f"even_pairs: min_length is {self.min_length} bits; use {_LEAST} or more")

    @property
    def vocab_size(self) -> int:
        return 3

    @property
    def num_answers(self) -> int:
        return 2

    @property
    def kinds(self) -> dict[str, range]:
        return {"pad": range(1), "bit": range(1, 3)}

    def describe(self, token: int) -> str:
        return "_01"[token]

    def check_length(self, length: int) -> None:
        least = self.min_length or _LEAST
        if length < least:
            raise ValueError(f"even_pairs: length {length} is too short; use length >= {least}")

    def sample(self, rows: Rows, length: int) -> Batch:
        self.check_length(length)
        least = length if self.min_length is None else self.min_length
        size_RB = least + rows.integers(_SIZE, 1, length - least + 1)[..., 0]
        return lay_out(rows.bits(_BITS, length), size_RB)


def lay_out(bits_RBT: Tensor, size_RB: Tensor) -> Batch:
    """Rows of the first `size` of these bits, all int64."""
    import torch

    last_RB1 = size_RB[..., None] - 1
    shown_RBT = torch.arange(bits_RBT.shape[-1], device=bits_RBT.device) <= last_RB1
    inputs_RBT = (bits_RBT + 1).mul_(shown_RBT)
    answer_RB1 = 1 + (bits_RBT[..., :1] ^ bits_RBT.gather(-1, last_RB1))
    targets_RBT = torch.full_like(inputs_RBT, IGNORE).scatter_(-1, last_RB1, answer_RB1)
    return Batch(inputs=inputs_RBT, targets=targets_RBT, loss_targets=targets_RBT, length=size_RB)
