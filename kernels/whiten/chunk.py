"""Whitened queries by chunks of time: every gram matrix of a chunk at once, none kept for the gradient.

Legend: B rows, T time, L steps of a chunk, H heads, K key width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from statelab.kernels.chunks import join, split
from statelab.kernels.recompute import recompute

LENGTH = 16
"""Steps of a chunk, whose gram matrices are held at once."""


def chunk(q_BTHK: Tensor, k_BTHK: Tensor, gram_BHKK: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """See `whiten`; keys have length 1, every tensor has the state's dtype."""
    time = q_BTHK.shape[1]
    length = min(LENGTH, time)
    solve = partial(_solve, ridge=ridge)
    outputs = []
    for q_BHLK, k_BHLK in zip(split(q_BTHK, length), split(k_BTHK, length), strict=True):
        outputs.append(recompute(solve, q_BHLK, k_BHLK, gram_BHKK))
        # Filled-up keys are zeros, so the last gram matrix is that of the last true step.
        gram_BHKK = gram_BHKK + k_BHLK.transpose(-1, -2) @ k_BHLK
    return join(torch.stack(outputs), time), gram_BHKK


def _solve(q_BHLK: Tensor, k_BHLK: Tensor, gram_BHKK: Tensor, *, ridge: float) -> Tensor:
    eye_KK = torch.eye(k_BHLK.shape[-1], dtype=k_BHLK.dtype, device=k_BHLK.device)
    added_BHLKK = (k_BHLK.unsqueeze(-1) * k_BHLK.unsqueeze(-2)).cumsum(dim=-3)
    gram_BHLKK = added_BHLKK + gram_BHKK.unsqueeze(-3) + ridge * eye_KK
    # solve_ex, unlike solve, does not wait for a GPU to say that the matrix can be inverted, which it can.
    solved_BHLK1, _ = torch.linalg.solve_ex(gram_BHLKK.transpose(-1, -2), q_BHLK.unsqueeze(-1))
    whitened_BHLK: Tensor = solved_BHLK1.squeeze(-1)
    return whitened_BHLK
