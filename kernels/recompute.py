"""Trade arithmetic for memory, under vmap too: keep a function's inputs, run it again for the gradient.

torch.utils.checkpoint keeps what it needs in hooks that a vmap does not outlive; an autograd Function
with a vmap rule of its own does not have that trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def recompute(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function(*inputs)`, holding on to `inputs` alone until the gradient is asked for.

    `function` takes and returns tensors, is pure, and closes over no tensor. One gradient deep.
    """
    output: Tensor = _Recompute.apply(function, *inputs)
    return output


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return function(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.function, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            inputs = [
                tensor.detach().requires_grad_(want)
                for tensor, want in zip(ctx.saved_tensors, wanted, strict=True)
            ]
            output = ctx.function(*inputs)
        asked = [tensor for tensor in inputs if tensor.requires_grad]
        gradients = iter(torch.autograd.grad(output, asked, gradient))
        return None, *(next(gradients) if want else None for want in wanted)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: Any, *inputs: Tensor
    ) -> tuple[Tensor, int]:
        return recompute(torch.func.vmap(function, in_dims=in_dims[1:]), *inputs), 0
