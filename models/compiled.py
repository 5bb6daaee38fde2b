"""Compiling a whole step: forward, backward, clipping and update become a few fused kernels.

The step is traced by running it on tensors without storage, so everything that runs eagerly can be traced: vmap,
autograd Functions and custom ops with vmap rules of their own, which torch.compile's own front end does not all
follow. The trace, which has no gradient left to take, is what torch.compile gets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from statelab.models.arithmetic import products_of
from statelab.models.long_sums import divide_long_sums
from statelab.models.settings import Arithmetic
from statelab.models.step import StepFunction, Tensors

OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"comprehensive_padding": False}
"""Of inductor: rows of its own tensors one behind the other. Padded to whole cache lines, what several products take
is copied for each of them.
"""


def compile_step(
    step: StepFunction,
    tensors: Tensors,
    inputs_RBT: Tensor,
    targets_RBT: Tensor,
    arithmetic: Arithmetic,
    backend: str = "inductor",
) -> StepFunction:
    """`step` for tensors of these shapes, compiled. Nothing is executed, and no tensor changes, before its first call.

    Raises what tracing raises for a model whose Python depends on the values of tensors; the first call raises what
    compiling does.
    """
    with warnings.catch_warnings():
        # Of torch's own tracing, about its internals.
        warnings.simplefilter("ignore")
        traced = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(
            _plain(tensors), inputs_RBT, targets_RBT
        )
    if divide_long_sums(traced):
        traced.recompile()
    compiled: Callable[..., Any] = torch.compile(
        traced, backend=backend, fullgraph=True, dynamic=False,
        options=OPTIONS if backend == "inductor" else None,
    )  # fmt: skip

    def run(tensors: Tensors, inputs_RBT: Tensor, targets_RBT: Tensor) -> Tensor:
        with torch.no_grad(), products_of(arithmetic), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses_R: Tensor = compiled(_plain(tensors), inputs_RBT, targets_RBT)
        return losses_R

    return run


def _plain(tensors: Tensors) -> Tensors:
    """The same memory, with the parameter as a plain tensor: torch.compile makes a difference between the two."""
    return tensors._replace(flat_RP=tensors.flat_RP.detach())
