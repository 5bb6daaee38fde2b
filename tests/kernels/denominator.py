"""The mLSTM's n·q by its kernels, as a function from tensors to tensors, compared with a loop in float64.

Legend: B rows, T time, H heads, K key width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.kernels.checks import check_near, gradients_of
from tests.kernels.matrix import log_decay, normal
from tests.kernels.recurrent import poisoned


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes and parts of a sequence."""

    B: int = 2
    T: int = 11
    H: int = 2
    K: int = 5
    start: bool = True
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        parts = ["start"] if self.start else []
        return "-".join((f"B{self.B}T{self.T}H{self.H}K{self.K}", *parts, str(self.dtype)[6:]))

    def draw(self, device: str = "cpu") -> list[Tensor]:
        """q and k as parts of one projection with heads before time; a first step that forgets all there was."""
        q, k = torch.cat([normal(self.B, self.H, self.T, self.K) for _ in range(2)], dim=-1).to(
            device, self.dtype
        ).transpose(1, 2).split(self.K, dim=-1)  # fmt: skip
        log_f, log_i = log_decay(self.B, self.T, self.H), normal(self.B, self.T, self.H) - 1
        if self.T > 2:
            log_f[0, 0], log_f[-1, self.T // 2] = -1e4, -torch.inf
        rest = [log_f, log_i, *([normal(self.B, self.H, self.K)] if self.start else [])]
        return [q, k, *(tensor.to(device, torch.float32) for tensor in rest)]


def by_kernels(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    from statelab.kernels.mlstm.denominator import denominator

    q, k, log_f, log_i, *start = tensors
    return denominator(q, k, log_f, log_i, start[0] if start else None)


def by_steps(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    q, k, log_f, log_i, *start = tensors
    n = start[0] if start else torch.zeros_like(k[:, 0])
    read = []
    for t in range(q.shape[1]):
        n = log_f[:, t].exp().unsqueeze(-1) * n + log_i[:, t].exp().unsqueeze(-1) * k[:, t]
        read.append((n * q[:, t]).sum(dim=-1))
    return torch.stack(read, dim=1), n


def compare(setting: Setting, tensors: Sequence[Tensor], tolerance: float) -> None:
    """s, the last n and every gradient by the kernels, on memory full of NaN, against the loop in float64."""
    with poisoned():
        got = gradients_of(by_kernels, tensors)
    wanted = gradients_of(by_steps, [tensor.double() for tensor in tensors])
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        check_near(setting, place, one, other, tolerance)
    assert [one.dtype for one in got] == [torch.float32] * 2 + [tensor.dtype for tensor in tensors]
