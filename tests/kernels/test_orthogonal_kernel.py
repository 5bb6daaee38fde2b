"""The orthogonal read's Triton kernels: against the definition in float64, and as compiled for sm_90."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.kernels.mlstm import mlstm
from statelab.kernels.orthogonal_read import COEFFICIENTS, Factor
from tests.kernels.offline import MAXIMUM_SHARED, reports_of
from tests.kernels.orthogonal import Case, bound, draw, errors, with_gradients

HALF = torch.bfloat16
FRAGMENT = (
    r"nvidia_mma<\{versionMajor = 2, .*instrShape = \[16, 8\]\}>"
    r"|linear<\{register = \[\[0, 1\], .*lane = \[\[0, 2\], \[0, 4\], \[1, 0\], \[2, 0\], \[4, 0\]\]"
)
"""Layouts in which each register of a warp's threads holds an 8 × 8 block as matrix units have it."""

INTERPRETED: list[Case] = [
    (3, 7, 9, "cubic", 5, "off", "tf32"),
    (2, 9, 9, "cubic", 17, "off", "tf32"),
    (17, 9, 9, "cubic", 2, "off", "fp16"),
    (2, 17, 20, "cubic", 2, "off", "bf16x3"),
    (1, 50, 64, "cubic", 2, "off", "fp16"),
    (1, 40, 35, "quintic", 2, "off", "bf16x3"),
    (2, 9, 9, "quintic", 3, "off", "bf16x6"),
    (3, 9, 9, "cubic", 0, "off", "bf16x6"),
    (3, 9, 9, "cubic", 1, "off", "bf16x6"),
    (3, 9, 9, "cubic", 2, "forward", "fp16"),
    (3, 9, 9, "quintic", 2, "backward", "bf16x6"),
]


@pytest.mark.parametrize("case", INTERPRETED, ids=str)
def test_it_is_the_definition(case: Case) -> None:
    assert max(errors(case, "cpu")) < bound(case)


def mlstm_inputs(time: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    q, k, v, forget, gate, C = (tensor.to(dtype).to(device) for tensor in draw(time, 9, 7, heads=1))
    n, m = torch.randn(2, 1, 9, dtype=dtype, device=device), torch.randn(2, 1, dtype=dtype, device=device)
    return [q, k, v, 3 * gate, 5 + 8 * forget, C, n, m]


def run_mlstm(inputs: Sequence[Tensor], backend: Any, **options: Any) -> tuple[Tensor, ...]:
    q, k, v, gate, forget, C, n, m = inputs
    settings = {"read": "orthogonal", "iterations": 2, "read_precision": "bf16x6", **options}
    h, state = mlstm(q, k, v, gate, forget, (C, n, m), backend=backend, **settings)
    return h, *state


@pytest.mark.parametrize("options", [{}, {"blend": 0.3}, {"normaliser": False}], ids=str)
def test_an_mlstm_reads_with_it(options: dict[str, Any]) -> None:
    """Output, last state and every gradient, the denominator's and the running maximum's too."""
    torch.manual_seed(1)
    inputs = mlstm_inputs(4, torch.float32, "cpu")
    settings = {name: torch.tensor(value) if name == "blend" else value for name, value in options.items()}
    wide = [tensor.double().requires_grad_() for tensor in inputs]
    wide_settings = {k: v.double() if isinstance(v, Tensor) else v for k, v in settings.items()}
    outputs = run_mlstm(wide, "reference", **wide_settings)
    weights = [torch.randn_like(out) for out in outputs]
    wanted = with_gradients(outputs, wide, weights)
    narrow = [tensor.requires_grad_() for tensor in inputs]
    got = with_gradients(run_mlstm(narrow, "triton", **settings), narrow, weights)
    for a, b in zip(got, wanted, strict=True):
        assert float((a.double() - b).detach().norm() / b.detach().norm()) < 1e-4


def test_lanes_under_vmap_are_lone_runs() -> None:
    torch.manual_seed(2)
    lanes = [mlstm_inputs(3, torch.float32, "cpu") for _ in range(2)]
    stacked = [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(lambda *tensors: run_mlstm(tensors, "triton"))(*stacked)
    for lane in range(2):
        for got, wanted in zip(together, run_mlstm(lanes[lane], "triton"), strict=True):
            torch.testing.assert_close(got[lane], wanted)


def launch(widths: Sequence[int] = (48,), precision: str = "bf16", factor: Factor = "cubic") -> None:
    from statelab.kernels.orthogonal_read.scan import orthogonal_scan, orthogonal_scan_backward

    numbers = (list(COEFFICIENTS[factor]), 5, "off", precision)
    for width in widths:
        inputs = [tensor.float() for tensor in draw(17, width, width, heads=1)]
        y, last, states = orthogonal_scan(*inputs, *numbers)
        orthogonal_scan_backward(*inputs[:5], last, states, y, last, *numbers)


def launch_of_16_bits() -> None:
    """Inputs in bfloat16 beside a float32 memory, as in a model's bf16 arithmetic."""
    from statelab.kernels.orthogonal_read.scan import orthogonal_scan, orthogonal_scan_backward

    inputs = [
        tensor.to(HALF if place < 3 else torch.float32) for place, tensor in enumerate(draw(17, 16, 16, 1))
    ]
    numbers = (list(COEFFICIENTS["cubic"]), 5, "off", "fp16")
    y, last, states = orthogonal_scan(*inputs, *numbers)
    orthogonal_scan_backward(*inputs[:5], last, states, y, last, *numbers)


def test_it_compiles_for_inputs_of_16_bits() -> None:
    for report in reports_of("tests.kernels.test_orthogonal_kernel:launch_of_16_bits"):
        assert report["stack"] == 0, report


def launch_narrow() -> None:
    launch((16, 32), "bf16")
    launch((32,), "bf16x3")
    launch((32,), "tf32", "quintic")


def test_it_compiles_for_sm_90_with_its_matrices_in_registers() -> None:
    reports = reports_of("tests.kernels.test_orthogonal_kernel:launch")
    assert {report["name"] for report in reports} >= {"forward_kernel", "backward_kernel", "carry_kernel"}
    for report in reports:
        # The iterations' kernels; the last one, a thirtieth of the time, multiplies in bf16x6 and may spill.
        assert report["stack"] <= (256 if report["name"] == "finish_kernel" else 48), report
        # Vectors change threads there, and matrices do not.
        assert report["shared"] <= 1024, report
    turned = {layout for report in reports for layout in report["turned"]}
    assert turned
    assert [layout for layout in turned if not re.search(FRAGMENT, layout)] == []


@pytest.mark.slow
def test_narrow_ones_compile_without_a_stack() -> None:
    for report in reports_of("tests.kernels.test_orthogonal_kernel:launch_narrow"):
        assert report["stack"] <= (256 if report["name"] == "finish_kernel" else 32), report
        assert report["shared"] <= MAXIMUM_SHARED, report


def launch_quintic() -> None:
    launch((48,), "bf16x3", "quintic")


@pytest.mark.slow
def test_the_quintic_compiles() -> None:
    """About a minute. Its matrices are 2 operands each, and have room on the stack, if not in registers."""
    for report in reports_of("tests.kernels.test_orthogonal_kernel:launch_quintic"):
        assert report["stack"] <= 320, report
        assert report["shared"] <= 1024, report
