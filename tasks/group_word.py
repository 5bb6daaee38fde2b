"""Group word problems: the product of all the elements so far, at every position.

The state-tracking task of Merrill, Petty and Sabharwal ("The illusion of state in state-space models", 2024,
the word-problem data), as DeltaProduct (Siems et al., 2025) and M²RNN train on it: S3 at 128, tested to 512.
Their files hold distinct rows, drawn once; here every row is drawn, independently of the others.

Legend: R lanes, B rows, T length, G elements of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from statelab.tasks.batch import Batch
from statelab.tasks.groups import elements, order, swaps
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_ROW = 0
_SPECIAL = ("PAD", "BOS", "UNK", "EOS", "SEP", "CLS", "MASK")


@dataclass(frozen=True, kw_only=True)
class GroupWord(Task):
    """Uniform elements of a group; what is asked at t is x_0 · x_1 · … · x_t, the new element on the right.

    Tokens and targets are the elements, in the order and with the products of `tasks/groups.py`; nothing is
    ever not scored. A length counts elements. With `peer_compat` a row has one token more: BOS comes first
    and is asked for, which any model gets right, and seven special tokens follow the elements (PAD, BOS, UNK,
    EOS, SEP, CLS, MASK), as in the word-problem data; its "length L" is then position L.

    `generators="swaps"` draws the elements that move at most two points (the identity and the transpositions
    of a symmetric group, each as likely), as DeltaProduct's `S5_only_swaps`; what is asked stays any element.

        GroupWord() at 8
            in    213 321 213 132 213 312 132 132
            out   213 312 132 123 213 321 312 321

        GroupWord(generators='swaps', peer_compat=True) at 8
            in    BOS 132 213 132 213 123 213 132 321
            out   BOS 132 312 321 231 231 321 312 213
    """

    group: Annotated[str, "S3, A5, Z60, D4 …, or a product of such, A4xZ5; at most 1024 elements"] = "S3"
    generators: Annotated[
        Literal["all", "swaps"], "elements drawn: all, or the identity and swaps of a symmetric group"
    ] = "all"
    peer_compat: Annotated[bool, "BOS in front and seven special tokens, as in the word-problem data"] = False

    def __post_init__(self) -> None:
        try:
            order(self.group)
            if self.generators == "swaps":
                swaps(self.group)
        except ValueError as error:
            raise ValueError(f"group_word: {error}") from None
        if self.generators not in ("all", "swaps"):
            raise ValueError(f"group_word: generators is {self.generators!r}; use 'all' or 'swaps'")

    @property
    def vocab_size(self) -> int:
        return order(self.group) + (len(_SPECIAL) if self.peer_compat else 0)

    @property
    def num_answers(self) -> int:
        return order(self.group)

    @property
    def kinds(self) -> dict[str, range]:
        kinds = {"element": range(order(self.group))}
        return kinds | {"special": range(order(self.group), self.vocab_size)} if self.peer_compat else kinds

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("prefix_exact",)

    def describe(self, token: int) -> str:
        return (elements(self.group) + _SPECIAL)[token]

    def check_length(self, length: int) -> None:
        if length < 1:
            raise ValueError(f"group_word: length {length} holds no element; use length >= 1")

    def sample(self, rows: Rows, length: int) -> Batch:
        from statelab.tasks.digits import digits, words_for
        from statelab.tasks.group_products import swaps_on

        self.check_length(length)
        swaps_S = swaps_on(self.group, rows.device) if self.generators == "swaps" else None
        drawn = order(self.group) if swaps_S is None else len(swaps_S)
        word_RBT = digits(rows.words(_ROW, words_for(length, drawn)), length, drawn)
        return self.lay_out(word_RBT if swaps_S is None else swaps_S[word_RBT])

    def lay_out(self, word_RBT: Tensor) -> Batch:
        """The rows made of these elements, int64."""
        import torch

        from statelab.tasks.group_products import prefix_products

        answers = prefix_products(self.group, word_RBT)
        if self.peer_compat:
            bos = torch.full_like(word_RBT[..., :1], order(self.group) + _SPECIAL.index("BOS"))
            word_RBT, answers = torch.cat([bos, word_RBT], -1), torch.cat([bos, answers], -1)
        length_RB = torch.full_like(word_RBT[..., 0], word_RBT.shape[-1])
        return Batch(inputs=word_RBT, targets=answers, loss_targets=answers, length=length_RB)
