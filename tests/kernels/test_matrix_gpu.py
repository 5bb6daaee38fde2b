"""The Triton kernels of ssd, Mamba-3 and the delta rule on a GPU: every configuration of tiles has its own check."""

from __future__ import annotations

import pytest
import torch

from statelab.kernels.ssd import kernel_limit
from tests.kernels.checks import check_compiled_lanes, with_gradients
from tests.kernels.matrix import OPS, TOLERANCES, compare

pytestmark = pytest.mark.gpu

SHAPES = [
    pytest.param(63, 16, 16, id="T63-K16-V16"),
    pytest.param(130, 32, 64, id="T130-K32-V64"),
    pytest.param(257, 47, 48, id="T257-K47-V48"),
    pytest.param(130, 64, 64, id="T130-K64-V64"),
    pytest.param(130, 64, 32, id="T130-K64-V32"),
    pytest.param(70, 64, 9, id="T70-K64-V9"),
    pytest.param(70, 32, 16, id="T70-K32-V16"),
    pytest.param(257, 64, 130, id="T257-K64-V130"),
    pytest.param(100, 128, 64, id="T100-K128-V64"),
    pytest.param(7, 9, 7, id="T7-K9-V7"),
]
"""Each tile of keys, values and steps that a plan chooses, most not filled."""

KERNELS = ["delta_rule", "ssd"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("precision", ["bf16", "tf32", "bf16x6"])
@pytest.mark.parametrize(("time", "keys", "values"), SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_numbers(name: str, time: int, keys: int, values: int, precision: str) -> None:
    """Outputs, last state and every gradient against the definition in float64, on poisoned memory."""
    if name == "ssd" and kernel_limit(keys, precision):
        pytest.skip("refused: see kernel_limit")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    inputs = OPS[name].inputs(2, time, 3, keys, values, dtype=dtype, device="cuda")
    compare(OPS[name], inputs, precision)


@pytest.mark.parametrize("precision", ["bf16", "bf16x3", "ieee"])
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_in_rarer_precisions_of_float32(name: str, precision: str) -> None:
    inputs = OPS[name].inputs(2, 130, 3, 32, 32, dtype=torch.float32, device="cuda")
    compare(OPS[name], inputs, precision)


@pytest.mark.parametrize("precision", ["bf16", "bf16x6"])
@pytest.mark.parametrize(
    "name", ["delta_product_2", "delta_product_3", "mamba3_mimo", "mamba3_siso", "ssd_one_group"]
)
def test_numbers_of_what_is_built_on_them(name: str, precision: str) -> None:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    inputs = OPS[name].inputs(2, 77, 4, 32, 48, dtype=dtype, device="cuda")
    compare(OPS[name], inputs, precision)


@pytest.mark.parametrize("name", ["delta_product_2", "delta_rule", "ssd_one_group"])
def test_gradients_are_the_same_to_the_last_bit(name: str) -> None:
    inputs = OPS[name].inputs(3, 200, 4, 64, 130, dtype=torch.bfloat16, device="cuda")
    once, again = (with_gradients(OPS[name], inputs, backend="triton") for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize("name", ["delta_product_2", "delta_rule", "ssd_one_group"])
def test_compiled_lanes_in_a_graph_are_lone_runs(name: str) -> None:
    op = OPS[name]
    lanes = [op.inputs(2, 70, 2, 32, 32, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    check_compiled_lanes(op, lanes, "triton", TOLERANCES["bf16"] / 10)


def test_more_sequences_than_one_grid_axis_counts() -> None:
    """70,000 rows and heads, beyond the 65,535 of a grid's later axes."""
    inputs = OPS["delta_rule"].inputs(17_500, 3, 4, 8, 8, dtype=torch.float32, device="cuda")
    compare(OPS["delta_rule"], inputs, "bf16x6")
