"""What a task hands to a model: inputs, targets, and what a curve may be drawn over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""Target at positions where nothing is scored (the default of torch's cross-entropy)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of rows; R lanes' batches carry a leading lane axis.

    Shapes: `inputs`, `targets`, `loss_targets`, `distance`, `group` are int64 `[R, B, T]`; `length` is int64
    `[R, B]`.

    `targets[t]` is what the model must output after reading `inputs[..t]`; IGNORE where nothing is scored.
    Accuracy is always measured on `targets`. `loss_targets` is what training sees: `targets` itself for
    `loss_on="scored"`, the next token at every position for `loss_on="all"`. `length` is the number of tokens
    of a row before padding. `distance`, None for tasks without queries, is at a scored position the number of
    tokens from where its key was last shown before to the query (1 or more), and IGNORE wherever `targets`
    is. `group`, None where every answer is one token, is at a scored position the number, from 0 in each row,
    of the answer that its token belongs to, and IGNORE elsewhere: an answer is right if all its tokens are.
    """

    inputs: Tensor
    targets: Tensor
    loss_targets: Tensor
    length: Tensor
    distance: Tensor | None = None
    group: Tensor | None = None
