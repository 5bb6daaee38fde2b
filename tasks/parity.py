"""Parity: is the number of ones odd?

Two published forms. `answer="last"`: one answer a row, asked for at the last bit, as in xlstm and
unlocking_state_tracking (the generator Mamba-3, appendix D, trains on). `answer="running"`: the parity of the
prefix at every position (zoology's `cumulative_parity`).

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


@dataclass(frozen=True, kw_only=True)
class Parity(Task):
    """Fair bits and the parity of the ones among them; nothing but the answers is ever trained on.

    With `answer="last"` tokens are PAD 0 and the bits 1 and 2; the one target, at the last bit, is the bit
    token of the parity. With `answer="running"` tokens and targets are the bits 0 and 1 themselves.

        Parity(min_length=3) at 8
            in    1 0 1 0 _ _ _ _
            out   · · · 0 · · · ·

        Parity(answer='running') at 8
            in    1 0 1 0 1 0 1 1
            out   1 1 0 0 1 1 0 1
    """

    answer: Annotated[Literal["last", "running"], "asked for at the last bit, or after every bit"] = "last"
    min_length: Annotated[
        int | None, "rows have from this many bits up to the length, padded behind; None: all have the length"
    ] = None

    def __post_init__(self) -> None:
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
        return 3 if self.answer == "last" else 2

    @property
    def num_answers(self) -> int:
        return 2

    @property
    def kinds(self) -> dict[str, range]:
        return {"pad": range(1), "bit": range(1, 3)} if self.answer == "last" else {"bit": range(2)}

    def describe(self, token: int) -> str:
        return "_01"[token] if self.answer == "last" else "01"[token]

    def check_length(self, length: int) -> None:
        least = self.min_length or 1
        if length < least:
            raise ValueError(f"parity: length {length} is too short; use length >= {least}")

    def sample(self, rows: Rows, length: int) -> Batch:
        import torch

        self.check_length(length)
        bits = rows.bits(_BITS, length)
        if self.answer == "running":
            return running(bits)
        least = length if self.min_length is None else self.min_length
        if least == length:
            return last(bits, torch.full(bits.shape[:-1], length, device=rows.device))
        return last(bits, least + rows.integers(_SIZE, 1, length - least + 1)[..., 0])


def running(bits_RBT: Tensor) -> Batch:
    """Rows that ask for the parity after every one of these bits."""
    import torch

    parity_RBT = bits_RBT.cumsum(-1) & 1
    length_RB = torch.full(bits_RBT.shape[:-1], bits_RBT.shape[-1], device=bits_RBT.device)
    return Batch(inputs=bits_RBT.contiguous(), targets=parity_RBT, loss_targets=parity_RBT, length=length_RB)


def last(bits_RBT: Tensor, size_RB: Tensor) -> Batch:
    """Rows that ask, at the last of the first `size` of these bits, for the parity of those."""
    import torch

    place_T = torch.arange(bits_RBT.shape[-1], device=bits_RBT.device)
    size_RB1 = size_RB[..., None]
    inputs_RBT = torch.where(place_T < size_RB1, bits_RBT + 1, _PAD)
    parity_RBT = bits_RBT.cumsum(-1) & 1
    targets_RBT = torch.where(place_T == size_RB1 - 1, parity_RBT + 1, IGNORE)
    return Batch(inputs=inputs_RBT, targets=targets_RBT, loss_targets=targets_RBT, length=size_RB)
