"""Loss and counts of right answers, a lane at a time.

Legend: R lanes, B rows, T time, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from statelab.tasks.batch import IGNORE


def lane_losses(logits_RBTV: Tensor, targets_RBT: Tensor) -> Tensor:
    """Mean cross-entropy [R], in nats, over the positions of each lane that have a target."""
    counts = (targets_RBT != IGNORE).sum(dim=(1, 2))
    return loss_sums(logits_RBTV, targets_RBT) / counts.clamp(min=1)


def loss_sums(logits_RBTV: Tensor, targets_RBT: Tensor) -> Tensor:
    """Summed cross-entropy [R], in nats, over the positions of each lane that have a target."""
    losses = cross_entropy(
        logits_RBTV.flatten(0, 2), targets_RBT.flatten(), ignore_index=IGNORE, reduction="none"
    )
    return losses.view(targets_RBT.shape[0], -1).sum(dim=1)


def right_counts(logits_RBTV: Tensor, targets_RBT: Tensor) -> tuple[Tensor, Tensor]:
    """Right answers [R] and scored positions [R], int64: micro accuracy is their quotient."""
    scored = targets_RBT != IGNORE
    right = (logits_RBTV.argmax(dim=-1) == targets_RBT) & scored
    return right.sum(dim=(1, 2)), scored.sum(dim=(1, 2))


def scaled_accuracy(accuracy: float, num_answers: int) -> float:
    """(accuracy - c) / (1 - c) with c = 1 / num_answers: 0 for guessing, 1 for perfect; may be negative."""
    chance = 1 / num_answers
    return (accuracy - chance) / (1 - chance)


def finite_lanes(*values_R: Tensor) -> Tensor:
    """Lanes [R] in which every one of the given numbers is finite."""
    return torch.stack([torch.isfinite(value) for value in values_R]).all(dim=0)
