"""Running sums along time, of tensors whose first axes are rows and time.

On a graphics card torch scans the innermost axis in parallel, and any other one step after another: time goes last.
"""

from __future__ import annotations

from torch import Tensor


def time_last(x_BT: Tensor) -> Tensor:
    """`[B, T, …]` as a dense `[B, …, T]`."""
    return x_BT.movedim(1, -1).contiguous()


def time_second(x_B: Tensor) -> Tensor:
    """`[B, …, T]` as a dense `[B, T, …]`."""
    return x_B.movedim(-1, 1).contiguous()


def sums_to_end(x_T: Tensor) -> Tensor:
    """For each step of `[…, T]` the sum of it and of all that follow."""
    return x_T.flip(-1).cumsum(-1).flip(-1)
