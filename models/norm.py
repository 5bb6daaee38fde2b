"""Norms with a weight and no bias. Legend: the last axis is normalised; axes before it may be heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statelab.kernels.contract import widen
from statelab.models.parameter import undecayed


class LayerNorm(nn.Module):
    """Layer norm of the last axis, `weight` of the given shape, no bias (xLSTM's `LayerNorm`, eps 1e-5).

    `LayerNorm(D)` norms a width; `LayerNorm(H, V)` norms each head and weighs each with its own row, which is
    xLSTM's `MultiHeadLayerNorm`. xLSTM stores weight − 1; without weight decay the two are the same.
    """

    def __init__(self, *shape: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = undecayed(torch.ones(shape))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight


class RMSNorm(nn.Module):
    """x / √(mean x² + eps) ⊙ weight over the last axis (arXiv 1910.07467, eq. 4), squared in float32 or
    wider.

    `RMSNorm(D)` norms a width; `RMSNorm(G, D)` norms each of G groups and weighs each with its own row.
    """

    def __init__(self, *shape: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = undecayed(torch.ones(shape))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = widen(x)
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight
