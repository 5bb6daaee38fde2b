"""Gradients to which several programs of a kernel add: each writes its part apart, and torch sums the parts.

So that the order of the sum, and its last bit, do not depend on which program is first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def parts(like: Tensor, shape: tuple[int, ...], count: int) -> Tensor:
    """Room for `count` parts of a gradient, in float32; a lone part is the gradient, in its input's dtype."""
    return like.new_empty(shape, dtype=like.dtype if count == 1 else torch.float32)


def summed(parts_X: Tensor, axis: int, like: Tensor) -> Tensor:
    """The gradient of `like` from its parts along `axis`."""
    whole = parts_X.squeeze(axis) if parts_X.shape[axis] == 1 else parts_X.sum(dim=axis)
    return whole.to(like.dtype)
