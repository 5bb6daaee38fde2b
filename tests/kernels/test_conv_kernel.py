"""The causal convolution's Triton kernels: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.checks import total
from tests.kernels.conv import Setting, compare, launch, with_gradients
from tests.kernels.offline import MAXIMUM_SHARED, reports_of

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)
HALF = torch.bfloat16


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@interpreted
@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(T=2),
        Setting(T=1, silu=False),
        Setting(B=1, T=70, C=67, J=3, bias=False, state=False),
        Setting(B=1, T=67, C=3, J=8),
        Setting(J=1, state=False),
        Setting(T=3, bias=False),
        Setting(T=2, state=False, silu=False),
    ],
    ids=str,
)
def test_numbers_in_float32(setting: Setting) -> None:
    compare(setting, setting.draw(), 1e-6)


@interpreted
def test_numbers_of_bfloat16_inputs_beside_float32_weights() -> None:
    setting = Setting(dtype=HALF)
    compare(setting, setting.draw(), 8e-3)


@interpreted
@pytest.mark.parametrize("shared", [0, 1, 2, 3], ids=["input", "weight", "bias", "state"])
def test_lanes_are_lone_runs_whatever_they_share(shared: int) -> None:
    setting = Setting(T=5, J=3)
    lanes = [setting.draw() for _ in range(2)]
    stacked = [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]
    leaves = [
        (tensor[0] if place == shared else tensor).requires_grad_() for place, tensor in enumerate(stacked)
    ]
    places = tuple(None if place == shared else 0 for place in range(4))
    outputs = torch.func.vmap(lambda *tensors: setting.run(tensors, "triton"), in_dims=places)(*leaves)
    gradients = torch.autograd.grad(
        [total([output[lane] for output in outputs]) for lane in range(2)], leaves
    )
    alone = [
        with_gradients(
            setting,
            [leaf if place == shared else leaf[lane] for place, leaf in enumerate(leaves)],
            "triton",
        )
        for lane in range(2)
    ]
    for place, (got, *wanted) in enumerate(zip([*outputs, *gradients], *alone, strict=True)):
        both = sum(wanted) if place - 2 == shared else torch.stack(wanted)
        torch.testing.assert_close(got, both, rtol=1e-6, atol=1e-6)


@interpreted
def test_pieces_are_the_whole() -> None:
    setting = Setting(T=9)
    x, weight, bias, state = setting.draw()
    whole, last = setting.run((x, weight, bias, state), "triton")
    one, between = setting.run((x[:, :2], weight, bias, state), "triton")
    two, after = setting.run((x[:, 2:], weight, bias, between), "triton")
    torch.testing.assert_close(torch.cat((one, two), dim=1), whole)
    torch.testing.assert_close(after, last)


@interpreted
def test_torch_compile_traces_it_whole() -> None:
    setting = Setting(T=4)
    compiled = torch.compile(
        lambda *tensors: setting.run(tensors, "triton"), backend="aot_eager", fullgraph=True
    )
    leaves = [tensor.requires_grad_() for tensor in setting.draw()]
    outputs = compiled(*leaves)
    got = [*outputs, *torch.autograd.grad(total(outputs), leaves)]
    for one, other in zip(got, with_gradients(setting, leaves, "triton"), strict=True):
        torch.testing.assert_close(one.detach(), other)


def launch_usual() -> None:
    launch(Setting(T=130, C=192, dtype=HALF, state=False))
    launch(Setting(T=130, C=188))


def launch_others() -> None:
    for taps in (2, 3):
        launch(Setting(T=66, C=64, J=taps, dtype=HALF))
    launch(Setting(T=3, C=4))
    launch(Setting(T=66, C=300, bias=False, state=False, silu=False))


def test_usual_sizes_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_conv_kernel:launch_usual")
    assert len(reports) == 4
    assert [report for report in reports if report["stack"] or report["shared"] > MAXIMUM_SHARED] == []


@pytest.mark.slow
def test_other_sizes_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_conv_kernel:launch_others")
    assert [report for report in reports if report["stack"] or report["shared"] > MAXIMUM_SHARED] == []
