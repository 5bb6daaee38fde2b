"""Mamba-3's fused Triton kernels on a GPU: every configuration of tiles has its own check."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from statelab.kernels.mamba3 import mamba3
from statelab.kernels.ssd import kernel_limit
from tests.kernels.checks import check_compiled_lanes, check_near, gradients_of, with_gradients
from tests.kernels.matrix import TOLERANCES, Op, compare, draw_mamba3, run_mamba3

pytestmark = pytest.mark.gpu

SHAPES = [
    pytest.param(1, 63, 16, 16, id="R1-T63-N16-P16"),
    pytest.param(1, 130, 32, 32, id="R1-T130-N32-P32"),
    pytest.param(1, 130, 32, 64, id="R1-T130-N32-P64"),
    pytest.param(1, 257, 47, 48, id="R1-T257-N47-P48"),
    pytest.param(1, 130, 64, 32, id="R1-T130-N64-P32"),
    pytest.param(1, 130, 64, 64, id="R1-T130-N64-P64"),
    pytest.param(1, 257, 64, 130, id="R1-T257-N64-P130"),
    pytest.param(1, 100, 128, 64, id="R1-T100-N128-P64"),
    pytest.param(1, 7, 9, 7, id="R1-T7-N9-P7"),
    pytest.param(2, 70, 32, 48, id="R2-T70-N32-P48"),
    pytest.param(3, 50, 24, 16, id="R3-T50-N24-P16"),
    pytest.param(4, 70, 64, 64, id="R4-T70-N64-P64"),
    pytest.param(16, 9, 16, 16, id="R16-T9-N16-P16"),
]
"""Each tile of states, widths and rows that a plan chooses, most not filled; ranks that fill a chunk or do not."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def op_of(ranks: int) -> Op:
    return Op(f"mamba3_{ranks}", run_mamba3, draw_mamba3(ranks), gates=(1, 2, 3, 4), states=4)


@pytest.mark.parametrize("precision", ["bf16", "tf32", "bf16x6"])
@pytest.mark.parametrize(("ranks", "time", "states", "width"), SHAPES)
def test_numbers(ranks: int, time: int, states: int, width: int, precision: str) -> None:
    """Outputs, the last state and every gradient, a given state's too, on poisoned memory."""
    if kernel_limit(states, precision):
        pytest.skip("refused: see kernel_limit")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    inputs = op_of(ranks).inputs(2, time, 3, states, width, dtype=dtype, device="cuda")
    compare(op_of(ranks), inputs, precision)


@pytest.mark.parametrize("precision", ["bf16", "bf16x3", "ieee"])
def test_numbers_in_rarer_precisions_of_float32(precision: str) -> None:
    inputs = op_of(1).inputs(2, 130, 3, 32, 32, dtype=torch.float32, device="cuda")
    compare(op_of(1), inputs, precision)


@pytest.mark.parametrize(("states", "width"), [(16, 16), (32, 32), (64, 64)])
@pytest.mark.parametrize(
    ("trapezoid", "rotating"), [(True, True), (False, True), (True, False), (False, False)]
)
def test_numbers_from_no_state(trapezoid: bool, rotating: bool, states: int, width: int) -> None:
    """As in training: the gradient of the output alone."""
    inputs = op_of(1).inputs(2, 200, 4, states, width, dtype=torch.bfloat16, device="cuda")[:7]
    present = [n for n in range(7) if (n != 3 or trapezoid) and (n != 4 or rotating)]

    def run(backend: str) -> list[Tensor]:
        def op(*leaves: Tensor) -> tuple[Tensor, ...]:
            given = dict(zip(present, leaves, strict=True))
            return (mamba3(*map(given.get, range(7)), backend=backend)[0],)  # type: ignore[arg-type]

        chosen = [inputs[n] for n in present]
        return gradients_of(op, chosen if backend == "triton" else [tensor.double() for tensor in chosen])

    for place, (one, other) in enumerate(zip(run("triton"), run("reference"), strict=True)):
        check_near("mamba3", place, one, other, TOLERANCES["bf16"])


def test_long_phases_keep_their_digits() -> None:
    inputs = op_of(1).inputs(2, 4096, 2, 16, 16, dtype=torch.float32, device="cuda")
    compare(op_of(1), inputs, "bf16x6")


def test_angles_that_are_not_finite_are_seen() -> None:
    inputs = op_of(1).inputs(1, 100, 1, 16, 16, dtype=torch.float32, device="cuda")
    inputs[4][0, 40, 0, 0] = torch.nan
    assert run_mamba3(*inputs, backend="triton")[0][:, 40:].isnan().all()


@pytest.mark.parametrize("ranks", [1, 4])
def test_gradients_are_the_same_to_the_last_bit(ranks: int) -> None:
    inputs = op_of(ranks).inputs(3, 200, 4, 64, 130, dtype=torch.bfloat16, device="cuda")
    once, again = (with_gradients(op_of(ranks), inputs, backend="triton") for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


def test_compiled_lanes_in_a_graph_are_lone_runs() -> None:
    op = op_of(1)
    lanes = [op.inputs(2, 70, 2, 32, 32, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    check_compiled_lanes(op, lanes, "triton", TOLERANCES["bf16"] / 10)
