"""The Triton kernels of ssd, Mamba-3 and the delta rule: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import math

import pytest
import torch

from tests.kernels.checks import check_lanes, check_traced_whole, check_unused_outputs
from tests.kernels.matrix import OPS, Op, compare, launch, poisoned
from tests.kernels.offline import misfits, reports_of

each_op = pytest.mark.parametrize("op", OPS.values(), ids=str)
interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)
KERNELS = [OPS[name] for name in ("delta_product_3", "delta_rule", "ssd_one_group")]
each_kernel = pytest.mark.parametrize("op", KERNELS, ids=str)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@interpreted
@each_op
def test_numbers_in_float32(op: Op) -> None:
    compare(op, op.inputs(2, 5, 2, 9, 7, dtype=torch.float32), "ieee")


@interpreted
@pytest.mark.parametrize(
    ("name", "time"), [("delta_product_3", 12), ("delta_rule", 35), ("ssd_one_group", 35)]
)
def test_numbers_beyond_a_chunk_and_a_block_of_values(name: str, time: int) -> None:
    compare(OPS[name], OPS[name].inputs(1, time, 2, 9, 67, dtype=torch.float32), "ieee")


@interpreted
@each_kernel
def test_numbers_in_bfloat16_beside_float32_gates(op: Op) -> None:
    compare(op, op.inputs(1, 18, 2, 9, 7, dtype=torch.bfloat16), "bf16")


@interpreted
@each_kernel
def test_lanes_are_lone_runs(op: Op) -> None:
    check_lanes(op, "triton")


@interpreted
@each_kernel
def test_a_graph_of_fake_tensors_has_the_shapes(op: Op) -> None:
    """With a state and without one."""
    inputs = op.inputs(1, 2, 1, 4, 3, dtype=torch.float32)
    for count in (len(inputs), len(inputs) - 1):
        check_traced_whole(op, inputs[:count], "triton")


@interpreted
@each_kernel
def test_one_of_two_outputs_may_go_unused(op: Op) -> None:
    """And values without gradients are the same."""
    inputs = op.inputs(1, 3, 1, 4, 3, dtype=torch.float32)
    check_unused_outputs(op, inputs, "triton")
    with torch.no_grad(), poisoned():
        got = op.run(*inputs, backend="triton")
    torch.testing.assert_close(got, op.run(*inputs, backend="reference"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "asked"),
    [("ssd", "state widths"), ("mamba3_siso", "state widths"), ("delta_rule", "key widths")],
)
def test_widths_beyond_a_kernel_are_refused_with_a_sentence(name: str, asked: str) -> None:
    inputs = OPS[name].inputs(1, 1, 1, 129, 1, dtype=torch.float32)
    with pytest.raises(
        ValueError, match=f"the Triton kernel takes {asked} up to 128, got 129; use backend 'auto'"
    ):
        OPS[name].run(*inputs, backend="triton")
    with pytest.raises(ValueError, match="unknown precision 'fp8'"):
        OPS[name].run(*inputs, precision="fp8")


def test_factors_beyond_a_chunk_are_refused_with_a_sentence() -> None:
    q, k, v, decay, beta, _ = OPS["delta_product_3"].inputs(1, 1, 1, 2, 2, dtype=torch.float32)
    many = [tensor.repeat_interleave(11, dim=2) for tensor in (k, v)]
    with pytest.raises(
        ValueError, match="the Triton kernel takes up to 32 factors, got 33; use backend 'auto'"
    ):
        OPS["delta_product_3"].run(q, *many, decay, beta.repeat_interleave(11, dim=2), backend="triton")


def launch_usual() -> None:
    launch("ssd", 64, 64, "bf16")
    launch("delta_rule", 64, 64, "bf16")


def launch_others() -> None:
    for width in (16, 32):
        launch("ssd", width, width, "bf16")
        launch("delta_rule", width, width, "bf16")
    launch("delta_rule", 128, 128, "bf16")
    launch("delta_rule", 32, 64, "bf16")
    for name in ("ssd", "delta_rule"):
        launch(name, 64, 32, "bf16")
    launch("delta_product_2", 32, 32, "bf16")
    launch("delta_product_3", 64, 64, "bf16")


def launch_precise() -> None:
    launch("ssd", 128, 64, "bf16x6")
    for precision in ("tf32", "bf16x6"):
        launch("delta_rule", 128, 64, precision)


def test_usual_widths_compile_for_hopper_all_but_without_spills() -> None:
    reports = reports_of("tests.kernels.test_matrix_kernel:launch_usual")
    assert len(reports) == 7
    assert misfits(reports, 8, chunk=208) == []


@pytest.mark.slow
def test_other_widths_compile_for_hopper_all_but_without_spills() -> None:
    reports = reports_of("tests.kernels.test_matrix_kernel:launch_others")
    assert misfits(reports, 8, chunk=216) == []


@pytest.mark.slow
def test_precise_products_fit_into_shared_memory() -> None:
    """Here values may spill into local memory."""
    reports = reports_of("tests.kernels.test_matrix_kernel:launch_precise")
    assert misfits(reports, math.inf) == []
