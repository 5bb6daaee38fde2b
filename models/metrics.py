"""Loss and counts of right answers, a lane at a time.

Legend: R lanes, B rows, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from statelab.models.settings import Metric
from statelab.tasks.batch import IGNORE, Batch

Counted = tuple[Tensor, Tensor]
"""Hits and trials, int64 `[R, N]`: a metric is their quotient, summed over all rows first."""

DISTANCE_BINS = 24
"""Bin i of the metric by distance counts distances in [2^i, 2^(i+1))."""


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


def scaled_accuracy(accuracy: float, num_answers: int) -> float:
    """(accuracy - c) / (1 - c) with c = 1 / num_answers: 0 for guessing, 1 for perfect; may be negative."""
    chance = 1 / num_answers
    return (accuracy - chance) / (1 - chance)


def finite_lanes(*values_R: Tensor) -> Tensor:
    """Lanes [R] in which every one of the given numbers is finite."""
    return torch.stack([torch.isfinite(value) for value in values_R]).all(dim=0)


def right_answers(logits_RBTV: Tensor, targets_RBT: Tensor) -> Tensor:
    """Where the largest logit is the target's, bool `[R, B, T]`; False where nothing is scored."""
    return (logits_RBTV.argmax(dim=-1) == targets_RBT) & (targets_RBT != IGNORE)


def accuracy(right_RBT: Tensor, batch: Batch) -> Counted:
    """Micro accuracy, N = 1: every scored position of every row counts once."""
    return right_RBT.sum(dim=(1, 2))[:, None], (batch.targets != IGNORE).sum(dim=(1, 2))[:, None]


def per_position(right_RBT: Tensor, batch: Batch) -> Counted:
    """Accuracy at each position, N = T."""
    return right_RBT.sum(dim=1), (batch.targets != IGNORE).sum(dim=1)


def prefix_exact(right_RBT: Tensor, batch: Batch) -> Counted:
    """Share of rows with no wrong answer up to each position, N = T; the last is exact match of whole rows."""
    fine_RBT = (right_RBT | (batch.targets == IGNORE)).long().cumprod(dim=-1)
    return fine_RBT.sum(dim=1), torch.full_like(fine_RBT[:, 0], fine_RBT.shape[1])


def per_class(right_RBT: Tensor, batch: Batch) -> Counted:
    """Accuracy at each target token (recall), N = 1 + the largest target; absent ones have no trials."""
    targets_RBT = batch.targets.expand_as(right_RBT)
    scored = targets_RBT != IGNORE
    classes = max(int(targets_RBT.max()) + 1, 0)
    places = torch.where(scored, targets_RBT, classes).flatten(1)
    return _by_place(places, right_RBT, classes), _by_place(places, scored, classes)


def by_distance(right_RBT: Tensor, batch: Batch) -> Counted:
    """Accuracy by how long ago the answer was shown, N = DISTANCE_BINS octaves; needs `batch.distance`."""
    assert batch.distance is not None
    distance_RBT = batch.distance.expand_as(right_RBT)
    octaves = torch.arange(1, DISTANCE_BINS, device=distance_RBT.device)
    bins = (distance_RBT[..., None] >= 1 << octaves).sum(dim=-1)
    scored = batch.targets.expand_as(right_RBT) != IGNORE
    places = torch.where(scored, bins, DISTANCE_BINS).flatten(1)
    return _by_place(places, right_RBT, DISTANCE_BINS), _by_place(places, scored, DISTANCE_BINS)


def exact_answers(right_RBT: Tensor, batch: Batch) -> Counted:
    """Share of answers with every token right, N = 1; an answer is a row's tokens of one `batch.group`."""
    assert batch.group is not None
    group_RBT = batch.group.expand_as(right_RBT)
    answers = max(int(group_RBT.max()) + 1, 1)
    wrong, there = (
        torch.stack([(mask & (group_RBT == i)).any(dim=-1) for i in range(answers)], dim=-1)
        for mask in (~right_RBT, torch.ones_like(right_RBT))
    )
    return (there & ~wrong).sum(dim=(1, 2))[:, None], there.sum(dim=(1, 2))[:, None]


METRICS: dict[Metric, Callable[[Tensor, Batch], Counted]] = {
    "by_distance": by_distance,
    "exact_answers": exact_answers,
    "per_class": per_class,
    "per_position": per_position,
    "prefix_exact": prefix_exact,
}
"""Metrics beside accuracy that a study may ask for; each is measured at the test lengths."""


def _by_place(places: Tensor, marks_RBT: Tensor, size: int) -> Tensor:
    """How many marks [R, size] fall on each place; a place of `size` is counted nowhere."""
    sums = torch.zeros(places.shape[0], size + 1, dtype=torch.int64, device=places.device)
    return sums.scatter_add_(1, places, marks_RBT.flatten(1).long())[:, :size]
