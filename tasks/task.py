"""The contract of a task: a frozen spec and a pure function from keys to rows.

This file and every task file import without torch, so that reading a spec stays quick: torch is imported
inside the functions that draw, and only for typing at the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from statelab.tasks.batch import Batch
    from statelab.tasks.rows import Rows

LossOn = Literal["all", "scored"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One setting of one task.

    Subclasses are frozen, keyword-only dataclasses whose fields are plain values (int, float, bool, str,
    Literal, tuples of these), each an `Annotated[type, "what it does"]`. `__post_init__` raises ValueError
    with a sentence for values that can never work.
    """

    @property
    def vocab_size(self) -> int:
        """Number of token ids; inputs and targets lie in [0, vocab_size)."""
        raise NotImplementedError

    @property
    def num_answers(self) -> int:
        """Number of equally likely answers, c of scaled accuracy (acc - 1/c) / (1 - 1/c)."""
        raise NotImplementedError

    @property
    def kinds(self) -> dict[str, range]:
        """What the token ids mean, as consecutive ranges that together are [0, vocab_size)."""
        return {"token": range(self.vocab_size)}

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is measured at test lengths beside accuracy, by names of models.settings.Metric.

        `by_distance` and `exact_answers` only where batches carry `distance` and `group`.
        """
        return ()

    def check_length(self, length: int) -> None:
        """Raise ValueError, naming the bound, if no row of this length can be made."""
        raise NotImplementedError

    def sample(self, rows: Rows, length: int) -> Batch:
        """Rows of `length`, the task's own length as its papers count it; `inputs.shape[-1]` may differ by
        one.

        Raises what `check_length` raises. Row i is a function of (self, seed, split, i, length) alone: the
        same whatever other rows or lanes are asked for, on any device. Tensors live on `rows.device`.
        """
        raise NotImplementedError

    def describe(self, token: int) -> str:
        """How a person would write a token: each differently, without spaces; for `statelab tasks show`."""
        return str(token)
