"""The stabiliser of every step against a loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from statelab.kernels.mlstm.maximum import running_maximum


def by_steps(gate: Tensor, log_forget: Tensor, m: Tensor) -> Tensor:
    every = []
    for t in range(gate.shape[1]):
        m = torch.maximum(log_forget[:, t] + m, gate[:, t])
        every.append(m)
    return torch.stack(every, dim=1)


def inputs(*shape: int) -> list[Tensor]:
    gate, forget = torch.randn(*shape, dtype=torch.float64), -torch.rand(*shape, dtype=torch.float64)
    return [gate, forget, torch.randn(shape[0], shape[2], dtype=torch.float64)]


@pytest.mark.parametrize("start", [0.0, 50.0, -50.0], ids=["some", "always", "never"])
def test_it_is_the_recurrence(start: float) -> None:
    torch.manual_seed(0)
    drawn = inputs(3, 40, 2)
    leaves = [*drawn[:2], drawn[2] + start]
    results = []
    for run in (running_maximum, by_steps):
        mine = [leaf.clone().requires_grad_() for leaf in leaves]
        m = run(*mine)
        results.append([m, *torch.autograd.grad((m * m.detach().cos()).sum(), mine)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_lanes_are_lone_runs() -> None:
    torch.manual_seed(1)
    lanes = [inputs(2, 9, 3) for _ in range(3)]
    stacked = [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(running_maximum)(*stacked)
    gradients = torch.autograd.grad(together.square().sum(), stacked)
    for lane, drawn in enumerate(lanes):
        mine = [tensor.requires_grad_() for tensor in drawn]
        alone = running_maximum(*mine)
        for one, other in zip(
            (together, *gradients), (alone, *torch.autograd.grad(alone.square().sum(), mine)), strict=True
        ):
            torch.testing.assert_close(one[lane], other)
