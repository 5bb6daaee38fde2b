"""Projections of neighbouring channels by themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BlockDiagonal(nn.Module):
    """Projects each block of neighbouring channels by itself; `weight` is `[blocks, out, in]`, no bias."""

    def __init__(self, channels: int, block: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels // block, block, block) * std)

    def forward(self, x: Tensor) -> Tensor:
        blocks, _, size = self.weight.shape
        return torch.einsum("...bi,boi->...bo", x.unflatten(-1, (blocks, size)), self.weight).flatten(-2)

    def dense(self) -> Tensor:
        """The same projection as one matrix `[out, in]`, zero outside the blocks."""
        blocks, size, _ = self.weight.shape
        if blocks == 1:
            return self.weight[0]
        places_bc = torch.eye(blocks, dtype=self.weight.dtype, device=self.weight.device)
        return (self.weight.unsqueeze(2) * places_bc[:, None, :, None]).reshape(blocks * size, blocks * size)
