"""Moving an mLSTM's read from orthogonal (α = 1) to raw (α = 0) while it trains, each lane at its own time.

The published follow-up of the orthogonal read (arXiv 2607.19390) finds that the read can be taken away: at fixed
steps, or after a lane's first evaluation at or above a gate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.models.settings import Anneal


def blend_at(anneal: Anneal, step: int | Tensor, gated_at_R: Tensor) -> Tensor:
    """α `[R]` of each lane at a step, a number or int64 `[]`, float32: 1, then a line down to `anneal.end`, then that.

    The line begins `dwell` steps after step `start` or, with a gate, after the step `gated_at` of the lane's first
    evaluation at or above it (-1 where there was none: α stays 1), and takes `span` steps.
    """
    begin_R = gated_at_R if anneal.gate is not None else torch.full_like(gated_at_R, anneal.start)
    progress_R = ((step - begin_R - anneal.dwell) / anneal.span).clamp(0, 1)
    blend_R = 1 - (1 - anneal.end) * progress_R
    return torch.where(begin_R < 0, torch.ones_like(blend_R), blend_R).float()


def gated(anneal: Anneal, step: int, accuracy_R: Tensor, gated_at_R: Tensor) -> Tensor:
    """`gated_at` after an evaluation: the step, for lanes that reach the gate for the first time."""
    if anneal.gate is None:
        return gated_at_R
    first_R = (gated_at_R < 0) & (accuracy_R >= anneal.gate)
    return torch.where(first_R, step, gated_at_R)
