"""Clipping the gradient of a recurrent state at every step of time.

Two places are in use, and they differ: open-lm-engine's torch code clips all of the state's gradient, its
Triton kernels only what comes from the next step, before the readout's part is added.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

ClipAt = Literal["total", "carried"]
"""Which gradient of a state h_t is clipped: all of it, or only that carried back from step t + 1."""


def check_clip(op: str, bound: float | None, at: str) -> None:
    """Raise ValueError unless `bound` is None or above 0 and `at` names a place."""
    if bound is not None and not bound > 0:
        raise ValueError(f"{op}: gradient_clip must be > 0, or None for none, got {bound}")
    if at not in get_args(ClipAt):
        raise ValueError(f"{op}: unknown clip_at {at!r}; use {' or '.join(get_args(ClipAt))}")


def read_and_carry(state: Tensor, bound: float | None, at: ClipAt) -> tuple[Tensor, Tensor]:
    """The new state of a step, once to read from and once to carry on: the same values, clipped gradients.

    A sequence's last state is the carried one, so that reading in pieces clips where reading at once does.
    """
    if bound is None:
        return state, state
    clipped = clip_gradient(state, bound)
    return (clipped if at == "total" else state), clipped


def clip_gradient(x: Tensor, bound: float) -> Tensor:
    """x itself; its gradient is clamped, entry by entry, to [−bound, bound]."""
    clipped: Tensor = _ClipGradient.apply(x, bound)
    return clipped


class _ClipGradient(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, bound: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.bound = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.clamp(-ctx.bound, ctx.bound), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, bound: float
    ) -> tuple[Tensor, int | None]:
        return clip_gradient(x, bound), in_dims[0]
