"""The mLSTM's n·q on a GPU against a loop in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from tests.kernels.checks import gradients_of, total
from tests.kernels.denominator import Setting, by_kernels, compare
from tests.kernels.graphs import eager_and_replayed

pytestmark = pytest.mark.gpu
HALF = torch.bfloat16


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "setting",
    [
        *(Setting(B=3, T=130, H=3, K=width) for width in (1, 7, 16, 31, 32, 33, 47, 48, 64, 65, 128)),
        *(Setting(B=3, T=130, H=3, K=width, dtype=HALF) for width in (1, 16, 47, 48, 64, 128)),
        Setting(B=3, T=65, H=2, K=48, dtype=torch.float16),
        *(Setting(T=time, K=48, start=False) for time in (1, 2, 7, 8, 9, 31, 32, 33, 257)),
        Setting(B=64, T=768, H=4, K=48, start=False),
        Setting(B=1500, T=63, H=4, K=32, dtype=HALF),
    ],
    ids=str,
)
def test_a_configuration(setting: Setting) -> None:
    # The card's exponentials are off by 2e-7, which the steps that n remembers add up.
    tolerance = {torch.float32: 1e-5, HALF: 8e-3, torch.float16: 1e-3}
    compare(setting, setting.draw("cuda"), tolerance[setting.dtype])


def test_keys_whose_last_axis_is_not_dense() -> None:
    setting = Setting(T=37, K=48)
    q, k, *rest = setting.draw("cuda")
    spread = [torch.stack((tensor, tensor), dim=-1)[..., 0] for tensor in (q, k)]
    compare(setting, [*spread, *rest], 1e-5)


def test_rows_that_are_not_aligned() -> None:
    setting = Setting(T=37, K=48, dtype=HALF)
    q, k, *rest = setting.draw("cuda")
    shifted = [torch.nn.functional.pad(tensor, (1, 2))[..., 1:-2] for tensor in (q, k)]
    compare(setting, [*shifted, *rest], 8e-3)


def stacked() -> list[Tensor]:
    lanes = [Setting(T=37, K=48).draw("cuda") for _ in range(3)]
    return [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]


def step(leaves: Sequence[Tensor], run: Callable[..., tuple[Tensor, ...]] | None = None) -> list[Tensor]:
    outputs = (run or torch.func.vmap(by_kernels))(*leaves)
    losses = [total([output[lane] for output in outputs]) for lane in range(3)]
    return [*outputs, *torch.autograd.grad(losses, leaves)]


def test_lanes_are_lone_runs() -> None:
    leaves = stacked()
    together = step(leaves)
    for lane in range(3):
        alone = gradients_of(by_kernels, [leaf[lane] for leaf in leaves])
        for got, wanted in zip(together, alone, strict=True):
            torch.testing.assert_close(got[lane], wanted, rtol=1e-5, atol=1e-5)


def test_a_captured_step_of_lanes_is_the_step() -> None:
    for one, other in zip(*eager_and_replayed(stacked, step), strict=True):
        assert torch.equal(one, other)


def test_a_compiled_step_of_lanes() -> None:
    torch.compiler.reset()
    leaves = stacked()
    compiled = torch.compile(torch.func.vmap(by_kernels), fullgraph=True)
    for one, other in zip(step(leaves, compiled), step(leaves), strict=True):
        torch.testing.assert_close(one, other)
