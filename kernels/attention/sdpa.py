"""Causal attention by torch's scaled_dot_product_attention.

torch has no vmap rule for it on a CPU, and would fall back to a loop over lanes; here a vmap's lanes join the rows.
For that the backward pass runs the forward again. Legend: see `attention`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def sdpa(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHV: Tensor, scale: float) -> Tensor:
    """See `attention`."""
    y_BTHV: Tensor = _Sdpa.apply(q_BTHK, k_BSHK, v_BSHV, scale)
    return y_BTHV


def _attend(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHV: Tensor, scale: float) -> Tensor:
    queries, keys = q_BTHK.shape[1], k_BSHK.shape[1]
    mask_TS = None
    if 1 < queries < keys:
        mask_TS = torch.ones(queries, keys, dtype=torch.bool, device=q_BTHK.device).tril(keys - queries)
    y_BHTV = F.scaled_dot_product_attention(
        q_BTHK.transpose(1, 2),
        k_BSHK.transpose(1, 2),
        v_BSHV.transpose(1, 2),
        attn_mask=mask_TS,
        is_causal=queries == keys,
        scale=scale,
    )
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BHTV.transpose(1, 2).contiguous()


class _Sdpa(torch.autograd.Function):
    @staticmethod
    def forward(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHV: Tensor, scale: float) -> Tensor:
        return _attend(q_BTHK, k_BSHK, v_BSHV, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_BTHV: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            q_BTHK, k_BSHK, v_BSHV = inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            y_BTHV = _attend(q_BTHK, k_BSHK, v_BSHV, ctx.scale)
        return *torch.autograd.grad(y_BTHV, inputs, g_BTHV), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, scale = inputs
        lanes = info.batch_size
        q, k, v = (
            (tensor.expand(lanes, *tensor.shape) if dim is None else tensor.movedim(dim, 0)).flatten(0, 1)
            for tensor, dim in zip(tensors, in_dims[:3], strict=True)
        )
        return sdpa(q, k, v, scale).unflatten(0, (lanes, -1)), 0
