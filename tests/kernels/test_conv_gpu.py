"""The causal convolution's Triton kernels on a GPU against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.conv import Setting, compare
from tests.kernels.graphs import eager_and_replayed

pytestmark = pytest.mark.gpu
HALF = torch.bfloat16


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(B=5, T=257, C=192),
        Setting(B=5, T=257, C=192, dtype=HALF),
        Setting(B=3, T=63, C=47, J=3, bias=False),
        Setting(B=3, T=130, C=188, state=False, dtype=HALF),
        Setting(B=2, T=2, C=64),
        Setting(B=2, T=65, C=130, J=8, silu=False),
        Setting(B=2, T=65, C=1, J=2, bias=False, state=False),
        Setting(B=4000, T=5, C=3),
        Setting(B=64, T=1024, C=256, bias=False, state=False, dtype=HALF),
        Setting(B=7, T=300, C=256, J=8, dtype=HALF),
        Setting(B=3, T=1, C=64, J=1, state=False),
    ],
    ids=str,
)
def test_a_configuration(setting: Setting) -> None:
    compare(setting, setting.draw("cuda"), 1e-2 if setting.dtype == HALF else 3e-6)


def test_a_slice_whose_vectors_are_not_aligned() -> None:
    setting = Setting(B=2, T=70, C=64, dtype=HALF)
    x, *rest = setting.draw("cuda")
    wide = torch.cat((x, x, x), dim=-1)
    compare(setting, [wide[..., 1:65], *rest], 1e-2)


SETTING = Setting(B=4, T=33, C=48)


def lanes() -> list[Tensor]:
    drawn = [SETTING.draw("cuda") for _ in range(3)]
    return [torch.stack(tensors).requires_grad_() for tensors in zip(*drawn, strict=True)]


def step(leaves: list[Tensor]) -> tuple[Tensor, ...]:
    outputs = torch.func.vmap(lambda *tensors: SETTING.run(tensors, "triton"))(*leaves)
    return *outputs, *torch.autograd.grad([output.square().sum() for output in outputs], leaves)


def test_lanes_are_lone_runs() -> None:
    leaves = lanes()
    together = step(leaves)
    for lane in range(3):
        alone = [leaf[lane].detach().requires_grad_() for leaf in leaves]
        outputs = SETTING.run(alone, "triton")
        gradients = torch.autograd.grad([output.square().sum() for output in outputs], alone)
        for got, wanted in zip(together, (*outputs, *gradients), strict=True):
            torch.testing.assert_close(got[lane], wanted, rtol=1e-5, atol=1e-5)


def test_a_captured_step_is_the_step() -> None:
    for one, other in zip(*eager_and_replayed(lanes, lambda leaves: step(list(leaves))), strict=True):
        assert torch.equal(one, other)


def test_a_compiled_step_of_lanes() -> None:
    leaves = lanes()
    compiled = torch.compile(torch.func.vmap(lambda *tensors: SETTING.run(tensors, "triton")), fullgraph=True)
    outputs = compiled(*leaves)
    got = [*outputs, *torch.autograd.grad([output.square().sum() for output in outputs], leaves)]
    for one, other in zip(got, step(leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_more_than_2_to_the_31_elements() -> None:
    """Offsets beyond 32 bits: the last row of a long batch is that of a short one."""
    setting = Setting(bias=False, state=False)
    x = torch.zeros(2**11 + 1, 2**14, 64, device="cuda", dtype=HALF)
    x[-1] = torch.randn(2**14, 64, device="cuda")
    weight = torch.randn(4, 64, device="cuda", dtype=HALF)
    assert torch.equal(setting.run((x, weight), "triton")[0][-1:], setting.run((x[-1:], weight), "triton")[0])
