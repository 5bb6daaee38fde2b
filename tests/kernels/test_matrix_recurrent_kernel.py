"""The kernels of a matrix state that is sequential in time: numbers in the interpreter, code for sm_90."""

from __future__ import annotations

from importlib import import_module
from unittest.mock import patch

import pytest
import torch

from statelab.kernels.contract import choose_backend
from tests.kernels.checks import check_lanes, check_traced_whole, check_unused_outputs, with_gradients
from tests.kernels.matrix import OPS, Op, compare, launch, poisoned
from tests.kernels.offline import reports_of

KERNELS = [OPS[name] for name in ("delta_product_3", "delta_rule", "ssd", "ssd_one_group")]
EITHER = [OPS[name] for name in ("delta_product_2", "ssd_one_group")]
"""One that erases and one that does not."""
either = pytest.mark.parametrize("op", EITHER, ids=str)
each_kernel = pytest.mark.parametrize("op", KERNELS, ids=str)
interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@interpreted
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((2, 4, 2, 9, 7), id="four sequences of a program, no power of two"),
        pytest.param((3, 2, 3, 3, 2), id="sequences that do not fill a program"),
        pytest.param((1, 6, 1, 33, 40), id="two blocks of keys and of values"),
        pytest.param((1, 1, 1, 64, 64), id="one step of the widest"),
    ],
)
@each_kernel
def test_numbers_in_float32(op: Op, shape: tuple[int, ...]) -> None:
    compare(op, op.inputs(*shape, dtype=torch.float32), "exact", backend="recurrent")


@interpreted
@each_kernel
def test_numbers_in_bfloat16_beside_float32_gates(op: Op) -> None:
    """Results are rounded to 16 bits; nothing on the way is."""
    compare(op, op.inputs(1, 4, 2, 9, 7, dtype=torch.bfloat16), "exact in 16 bits", backend="recurrent")


@interpreted
def test_numbers_in_mixed_types_without_a_state() -> None:
    """16-bit queries beside float32 keys, and 16-bit gates."""
    q, k, v, decay, beta, _ = OPS["delta_rule"].inputs(1, 6, 1, 5, 4, dtype=torch.float32)
    inputs = [q.bfloat16(), k, v, decay.bfloat16(), beta.bfloat16()]
    compare(OPS["delta_rule"], inputs, "exact in 16 bits", backend="recurrent")


@interpreted
@either
def test_nothing_goes_back_through_a_decay_of_zero(op: Op) -> None:
    """Not the rounding of the sum over later steps either."""
    inputs = op.inputs(1, 8, 2, 5, 4, dtype=torch.float32)
    place = op.gates[0]
    ddecay = with_gradients(op, inputs, backend="recurrent")[2 + place]
    assert inputs[place].isinf().any()
    assert ((ddecay == 0) == inputs[place].isinf()).all()


@interpreted
@either
def test_lanes_are_lone_runs(op: Op) -> None:
    check_lanes(op, "recurrent")


@interpreted
@either
def test_a_graph_of_fake_tensors_has_the_shapes(op: Op) -> None:
    """With a state and without one."""
    inputs = op.inputs(1, 2, 1, 4, 3, dtype=torch.float32)
    for count in (len(inputs), len(inputs) - 1):
        check_traced_whole(op, inputs[:count], "recurrent")


@interpreted
@either
def test_one_of_two_outputs_may_go_unused(op: Op) -> None:
    """And values without gradients are the same."""
    inputs = op.inputs(1, 3, 1, 4, 3, dtype=torch.float32)
    check_unused_outputs(op, inputs, "recurrent")
    with torch.no_grad(), poisoned():
        got = op.run(*inputs, backend="recurrent")
    torch.testing.assert_close(got, op.run(*inputs, backend="reference"), rtol=1e-4, atol=1e-4)


@each_kernel
def test_widths_beyond_the_kernel_are_refused_with_a_sentence(op: Op) -> None:
    inputs = op.inputs(1, 1, 1, 65, 2, dtype=torch.float32)
    with pytest.raises(ValueError, match="takes widths up to 64, got 65 and 2; use backend 'auto'"):
        op.run(*inputs, backend="recurrent")
    with pytest.raises(ValueError, match="computes in float32, and got float64; use backend 'auto'"):
        op.run(
            *(tensor.double() for tensor in op.inputs(1, 1, 1, 2, 2, dtype=torch.float32)),
            backend="recurrent",
        )


def test_auto_takes_the_kernel_that_is_named_last_and_no_kernel_where_it_cannot_run() -> None:
    has = ("reference", "chunk", "recurrent", "triton")
    with (
        patch.object(torch.Tensor, "device", torch.device("cuda")),
        patch("statelab.kernels.contract.refusal", return_value=None),
    ):
        given = torch.zeros(1)
        limit = {"triton": "takes no more", "recurrent": None}
        assert choose_backend("op", "auto", has, given) == "triton"
        assert (
            choose_backend("op", "auto", (*has[:2], "triton", "recurrent"), given, limit=limit) == "recurrent"
        )
        assert choose_backend("op", "auto", has, given, limit=limit) == "chunk"
        assert choose_backend("op", "recurrent", has, given, limit=limit) == "recurrent"


def test_narrow_states_of_many_sequences_go_step_by_step_where_no_gradient_is_wanted() -> None:
    rule = import_module("statelab.kernels.delta_rule")._sequential
    assert not rule(16, 16, 4096)
    with torch.no_grad():
        assert rule(16, 16, 4096)
        assert not rule(32, 16, 4096)
        assert not rule(16, 16, 8)


def launch_usual() -> None:
    launch("ssd", 16, 16, "bf16", backend="recurrent")
    launch("delta_rule", 32, 32, "ieee", backend="recurrent")


def launch_others() -> None:
    for precision in ("bf16", "ieee"):
        for keys, values in ((16, 16), (32, 32), (16, 32), (32, 16), (24, 9), (3, 2)):
            for name in ("ssd", "delta_rule", "delta_product_2"):
                launch(name, keys, values, precision, backend="recurrent")


def launch_widest() -> None:
    for name in ("ssd", "delta_rule"):
        launch(name, 64, 64, "ieee", backend="recurrent")


def test_usual_widths_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_matrix_recurrent_kernel:launch_usual")
    assert len(reports) == 8
    # 128 registers of a thread leave room for 16 programs of one warp on a multiprocessor.
    assert [report for report in reports if report["stack"] or report["registers"] > 128] == []


@pytest.mark.slow
def test_other_widths_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_matrix_recurrent_kernel:launch_others")
    assert [report for report in reports if report["stack"]] == []


@pytest.mark.slow
def test_the_widest_compile_for_hopper_all_but_without_spills() -> None:
    reports = reports_of("tests.kernels.test_matrix_recurrent_kernel:launch_widest")
    assert [report for report in reports if report["stack"] > 64] == []
