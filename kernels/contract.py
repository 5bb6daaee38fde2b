"""What every op checks at its public function, once: shapes, the backend's name, the state's width."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Backend = Literal["auto", "reference", "chunk"]
"""`auto` is the parallel form where an op has one, else the reference."""


def check_shapes(op: str, **named: tuple[Tensor | None, str]) -> dict[str, int]:
    """Sizes by letter, from tensors given as `name=(tensor, "B T H K")`; None is skipped.

    The first tensor that carries a letter fixes its size. Raises ValueError, with the numbers on both sides,
    for a tensor that does not fit those before it.
    """
    sizes: dict[str, int] = {}
    for name, (tensor, legend) in named.items():
        if tensor is None:
            continue
        letters = legend.split()
        found = list(tensor.shape)
        if len(found) == len(letters):
            for letter, size in zip(letters, found, strict=True):
                sizes.setdefault(letter, size)
            if [sizes[letter] for letter in letters] == found:
                continue
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
        raise ValueError(f"{op}: {name} must be [{', '.join(letters)}] = [{wanted}], got {found}")
    if sizes.get("T") == 0:
        raise ValueError(f"{op}: needs at least one step of time, got T = 0")
    return sizes


def choose_backend(op: str, backend: str, has: tuple[str, ...]) -> str:
    """The backend to run; `has` names the op's own, the preferred one last.

    Raises ValueError for a backend that the op does not have.
    """
    if backend == "auto":
        return has[-1]
    if backend not in has:
        raise ValueError(f"{op}: unknown backend {backend!r}; use auto, {' or '.join(has)}")
    return backend


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider: a state is never kept in 16 bits."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
