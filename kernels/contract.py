"""What every op checks at its public function, once: shapes, the backend's name, the state's width."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor

Backend = Literal["auto", "reference", "chunk", "recurrent", "triton"]
"""`auto` is the Triton kernel where an op has one and it can run, else the parallel form, else the reference.
`recurrent` is a Triton kernel too, of ops that have two: sequential in time, where `triton` goes by chunks."""

KERNELS = ("recurrent", "triton")

HAS_TRITON = find_spec("triton") is not None


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


def choose_backend(
    op: str,
    backend: str,
    has: tuple[str, ...],
    *tensors: Tensor | None,
    limit: str | Mapping[str, str | None] | None = None,
    proven: bool = True,
) -> str:
    """The backend to run; `has` names the op's own, the preferred one last.

    `tensors` are what a Triton kernel would compute on, `limit` what it cannot do of what was asked, as a
    sentence's predicate ("takes widths up to 128, got 200"), by kernel if there are two. Raises ValueError for a
    backend that the op does not have, and for a kernel where it cannot run; "auto" then takes the last that is no
    kernel. So it does, too, with a kernel that is not `proven`: whose tests have not all been seen to pass on a card.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    wanted = has[-1] if backend == "auto" else backend
    limit = limit.get(wanted) if isinstance(limit, Mapping) else limit
    if backend == "auto":
        if has[-1] not in KERNELS:
            return has[-1]
        on_gpu = len(given) > 0 and given[0].device.type == "cuda"
        runs = proven and on_gpu and (limit or refusal(given)) is None
        return has[-1] if runs else [name for name in has if name not in KERNELS][-1]
    if backend not in has:
        raise ValueError(f"{op}: unknown backend {backend!r}; use auto, {' or '.join(has)}")
    reason = (limit or refusal(given)) if backend in KERNELS else None
    if reason:
        raise ValueError(f"{op}: the Triton kernel {reason}; use backend 'auto'")
    return backend


def refusal(tensors: list[Tensor]) -> str | None:
    """Why no Triton kernel can compute on these tensors, as a sentence's predicate, or None."""
    wide = [tensor.dtype for tensor in tensors if tensor.dtype == torch.float64]
    if wide:
        return "computes in float32, and got float64"
    if not HAS_TRITON:
        return "needs the package triton, which is not installed"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    elsewhere = [tensor.device for tensor in tensors if tensor.device.type != "cuda"]
    if elsewhere and not interpreted:
        return f"needs tensors on a CUDA device, and got one on {elsewhere[0]}"
    return None


def narrow_limit(keys: int, values: int) -> str | None:
    """What `kernels.matrix_scan` cannot do, as a sentence's predicate: its states lie in registers."""
    wide = max(keys, values) > 64
    return f"that is sequential takes widths up to 64, got {keys} and {values}" if wide else None


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider: a state is never kept in 16 bits."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def autocast(device: torch.device, *, enabled: bool) -> AbstractContextManager[Any]:
    """Torch's autocast to bfloat16, on or off within the block.

    Tensors of shapes alone, on the device `meta`, are never cast: torch has no autocast for them.
    """
    if device.type == "meta" and not enabled:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def as_factor(tensor: Tensor) -> Tensor:
    """The tensor as torch's autocast would give it to a product: made once for several that take it."""
    kind = tensor.device.type
    casts = kind != "meta" and torch.is_autocast_enabled(kind)
    return tensor.to(torch.get_autocast_dtype(kind)) if casts else tensor
