"""The arithmetic of a forward and backward pass, set for its duration and put back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from statelab.kernels.contract import autocast
from statelab.models.settings import Arithmetic


def parameter_dtype(arithmetic: Arithmetic) -> torch.dtype:
    """Type of weights, moments and losses; `bf16` and `tf32` keep float32 weights."""
    return torch.float64 if arithmetic == "float64" else torch.float32


def check_arithmetic(arithmetic: Arithmetic, device: torch.device) -> None:
    """Raise ValueError where a device would silently compute something else."""
    if arithmetic == "tf32" and device.type != "cuda":
        raise ValueError(
            f"arithmetic 'tf32' was asked for, but {device} has none and would compute in float32: "
            "use 'float32', or run on a CUDA device"
        )


@contextmanager
def arithmetic_of(arithmetic: Arithmetic, device: torch.device) -> Iterator[None]:
    """A forward pass in `arithmetic` within the block; its backward pass belongs in `products_of`.

    float32: IEEE products. tf32: 10-bit mantissa operands, float32 sums. bf16: torch's autocast rules. float64:
    the weights' own type.
    """
    with products_of(arithmetic), autocast(device, enabled=arithmetic == "bf16"):
        yield


@contextmanager
def products_of(arithmetic: Arithmetic) -> Iterator[None]:
    """Matrix products of float32 in `arithmetic` within the block, whichever thread computes them."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
