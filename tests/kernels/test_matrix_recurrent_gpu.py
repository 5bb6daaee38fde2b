"""The kernels of a matrix state that is sequential in time on a GPU: every configuration has its own check."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.checks import check_compiled_lanes, with_gradients
from tests.kernels.matrix import OPS, compare

pytestmark = pytest.mark.gpu

SHAPES = [
    pytest.param(63, 16, 16, id="T63-K16-V16"),
    pytest.param(130, 32, 32, id="T130-K32-V32"),
    pytest.param(65, 16, 32, id="T65-K16-V32"),
    pytest.param(65, 32, 16, id="T65-K32-V16"),
    pytest.param(130, 64, 64, id="T130-K64-V64"),
    pytest.param(33, 47, 40, id="T33-K47-V40"),
    pytest.param(33, 9, 50, id="T33-K9-V50"),
    pytest.param(7, 9, 7, id="T7-K9-V7"),
    pytest.param(2, 3, 1, id="T2-K3-V1"),
    pytest.param(1, 32, 32, id="T1-K32-V32"),
]
"""Each number of sequences of a program, of values that a thread holds and of blocks, most not filled."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("time", "keys", "values"), SHAPES)
@pytest.mark.parametrize("name", ["delta_product_2", "delta_product_3", "delta_rule", "ssd", "ssd_one_group"])
def test_numbers(name: str, time: int, keys: int, values: int, dtype: torch.dtype) -> None:
    """Outputs, last state and every gradient against the definition in float64, on poisoned memory."""
    inputs = OPS[name].inputs(3, time, 3, keys, values, dtype=dtype, device="cuda")
    compare(OPS[name], inputs, "exact" if dtype == torch.float32 else "exact in 16 bits", backend="recurrent")


@pytest.mark.parametrize("name", ["delta_rule", "ssd"])
def test_numbers_over_many_steps(name: str) -> None:
    """Over which the rounding of float32 adds up, in the sums that are gradients of decays too."""
    inputs = OPS[name].inputs(1, 1024, 2, 32, 32, dtype=torch.float32, device="cuda")
    compare(OPS[name], inputs, "ieee", backend="recurrent")


@pytest.mark.parametrize("name", ["delta_product_2", "delta_rule", "ssd_one_group"])
def test_gradients_are_the_same_to_the_last_bit(name: str) -> None:
    inputs = OPS[name].inputs(3, 200, 4, 33, 48, dtype=torch.bfloat16, device="cuda")
    once, again = (with_gradients(OPS[name], inputs, backend="recurrent") for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize("name", ["delta_product_2", "delta_rule", "ssd_one_group"])
def test_compiled_lanes_in_a_graph_are_lone_runs(name: str) -> None:
    op = OPS[name]
    lanes = [op.inputs(2, 70, 2, 16, 32, dtype=torch.float32, device="cuda") for _ in range(3)]
    check_compiled_lanes(op, lanes, "recurrent", 1e-6)


def test_more_sequences_than_one_grid_axis_counts() -> None:
    """280,000 rows and heads, four of them a program."""
    inputs = OPS["delta_rule"].inputs(70_000, 3, 4, 8, 8, dtype=torch.float32, device="cuda")
    compare(OPS["delta_rule"], inputs, "exact", backend="recurrent")


def test_more_entries_than_32_bits_count() -> None:
    """A value tensor of 2.2e9 entries: its last row is that row alone."""
    shape, alone = (2**15 + 1, 1024, 2), slice(2**15, None)
    q = torch.randn(*shape, 4, device="cuda", dtype=torch.bfloat16)
    v = torch.randn(*shape, 32, device="cuda", dtype=torch.bfloat16)
    decay = torch.full(shape, -0.1, device="cuda", dtype=torch.bfloat16)
    assert v.numel() > 2**31
    with torch.no_grad():
        y, last = OPS["ssd"].run(v, decay, q, q, backend="recurrent")
        one, last_one = OPS["ssd"].run(v[alone], decay[alone], q[alone], q[alone], backend="recurrent")
    assert torch.equal(y[alone], one)
    assert torch.equal(last[alone], last_one)
