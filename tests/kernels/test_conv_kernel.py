"""The causal convolution's Triton kernels: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import pytest
import torch

from statelab.kernels.causal_conv.sliding import BACKWARD, FORWARD, plan
from tests.kernels.checks import total
from tests.kernels.conv import Setting, compare, launch, with_gradients
from tests.kernels.offline import misfits, reports_of

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
        Setting(B=1, T=35, C=35, J=3, bias=False, state=False),
        Setting(B=1, T=67, C=3, J=8),
        Setting(J=1, state=False),
        Setting(T=3, bias=False),
        Setting(T=8, C=3),
        Setting(T=2, state=False, silu=False),
        Setting(B=1, T=37, C=64, state=False),
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
@pytest.mark.parametrize("place", [0, 1], ids=["output", "last inputs"])
def test_gradients_through_one_output_alone(place: int) -> None:
    setting = Setting(T=6)
    leaves = [tensor.double().requires_grad_() for tensor in setting.draw()]
    narrow = [leaf.detach().float().requires_grad_() for leaf in leaves]
    wanted = torch.autograd.grad(
        total(setting.run(leaves, "reference")[place : place + 1]),
        leaves,
        allow_unused=True,
        materialize_grads=True,
    )
    got = torch.autograd.grad(total(setting.run(narrow, "triton")[place : place + 1]), narrow)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("held", [1, 2, 4])
@pytest.mark.parametrize("channels", [1, 5, 32, 47, 64, 96, 160, 188, 256])
def test_a_plan_covers_time_and_wastes_few_channels(channels: int, held: int) -> None:
    for rows, steps in ((1, 1), (3, 1000), (64, 1027), (5000, 300)):
        x = torch.empty(rows, steps, channels, dtype=HALF, device="meta")
        stretch, tile = plan(x, steps, 4, held, 8, 3000)
        assert stretch % 8 == 0
        assert stretch - 8 < 256
        # Rounding up may not leave a stretch without steps.
        assert (-(-steps // stretch) - 1) * stretch < steps
        assert tile["W"] * tile["N"] in (32, 64, 128)
        padded = -(-channels // tile["W"]) * tile["W"]
        assert padded == (-(-channels // 32) * 32 if channels > 32 else 1 << (channels - 1).bit_length())


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
    launch(Setting(B=64, T=1024, C=256, bias=False, state=False, dtype=HALF), places=[0])
    launch(Setting(B=8, T=130, C=64, state=False), places=[0])


def launch_others() -> None:
    for taps in (2, 8):
        launch(Setting(T=66, C=64, J=taps, dtype=HALF))
    launch(Setting(T=130, C=256))
    launch(Setting(T=130, C=188))
    launch(Setting(T=3, C=4))
    launch(Setting(T=66, C=300, bias=False, state=False, silu=False))


def test_usual_sizes_compile_for_hopper_to_many_warps() -> None:
    """No spills, no exchange between threads, and as many warps at once as `plan` counts on."""
    reports = reports_of("tests.kernels.test_conv_kernel:launch_usual")
    walks = [report for report in reports if report["name"] != "sum_kernel"]
    assert [len(walks), len(reports)] == [4, 6]
    assert [report for report in walks if report["stack"] or report["shared"]] == []
    for report in walks:
        warps = (BACKWARD if report["name"] == "backward_kernel" else FORWARD)[2]
        assert report["registers"] * 32 * warps / 132 <= 2**16, report


@pytest.mark.slow
def test_other_sizes_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_conv_kernel:launch_others")
    assert misfits(reports) == []
