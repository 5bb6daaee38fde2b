"""Which device is trained on. Imports torch and no more: a launcher has no need of Lightning."""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """The device called `auto`, `cpu` or `cuda`. Raises ValueError where it is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for, but torch sees no CUDA device: use 'cpu' or 'auto'")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}; known: auto, cpu, cuda")
    return torch.device(name)
