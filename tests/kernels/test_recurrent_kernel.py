"""The Triton kernels of tanh RNN, GRU and M²RNN: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.kernels.checks import check_lanes, check_traced_whole
from tests.kernels.offline import misfits, reports_of
from tests.kernels.recurrent import OPS, Op, compare, launch, poisoned

each_op = pytest.mark.parametrize("op", OPS.values(), ids=str)
interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@interpreted
@each_op
def test_numbers_in_float32(op: Op) -> None:
    compare(op, op.inputs(2, 4, 2, 9, 7, dtype=torch.float32), tolerance=3e-6)


@interpreted
@pytest.mark.parametrize(("name", "time"), [("gru", 34), ("m2rnn", 18), ("rnn", 34)])
def test_numbers_beyond_a_block_of_steps(name: str, time: int) -> None:
    """Two blocks of steps in the sum for W or between kept states, two tiles of keys, clipped gradients."""
    inputs = OPS[name].inputs(1, time, 1, 33, 5, dtype=torch.float32)
    compare(OPS[name], inputs, tolerance=3e-6, gradient_clip=0.3, clip_at="carried")


@interpreted
@pytest.mark.parametrize(
    ("width", "values", "dtype", "precision", "tolerance"),
    [(65, 33, torch.float32, "ieee", 3e-6), (64, 33, torch.bfloat16, "bf16", 2e-2)],
    ids=["float32", "bfloat16"],
)
def test_numbers_in_m2rnns_wide_tiles(
    width: int, values: int, dtype: torch.dtype, precision: str, tolerance: float
) -> None:
    """Tiles of 64 keys, the second almost empty; a last segment of three steps, which two large products share."""
    inputs = OPS["m2rnn"].inputs(1, 19, 1, width, values, dtype=dtype)
    compare(OPS["m2rnn"], inputs, tolerance, precision, gradient_clip=0.3, clip_at="total")


@interpreted
@each_op
def test_numbers_in_bfloat16_beside_float32_gates(op: Op) -> None:
    options: dict[str, Any] = {"gradient_clip": 0.3, "clip_at": "total"}
    compare(op, op.inputs(1, 3, 2, 9, 7, dtype=torch.bfloat16), tolerance=2e-2, **options)


@interpreted
@each_op
def test_lanes_are_lone_runs(op: Op) -> None:
    check_lanes(op, "triton")


@interpreted
@pytest.mark.parametrize("name", ["gru", "m2rnn"])
def test_torch_compile_traces_it_whole(name: str) -> None:
    check_traced_whole(OPS[name], OPS[name].inputs(1, 2, 1, 4, 3, dtype=torch.float32), "triton")


def test_widths_beyond_a_kernel_are_refused_with_a_sentence() -> None:
    inputs = OPS["rnn"].inputs(1, 1, 1, 129, 1, dtype=torch.float32)
    with pytest.raises(
        ValueError, match="the Triton kernel takes head widths up to 128, got 129; use backend"
    ):
        OPS["rnn"].run(*inputs, backend="triton")
    inputs = OPS["m2rnn"].inputs(1, 1, 1, 3, 129, dtype=torch.float32)
    with pytest.raises(
        ValueError, match="the Triton kernel takes value widths up to 128, got 129; use backend"
    ):
        OPS["m2rnn"].run(*inputs, backend="triton")
    with pytest.raises(ValueError, match="unknown precision 'fp8'"):
        OPS["m2rnn"].run(*inputs, precision="fp8")


def launch_usual() -> None:
    launch("rnn", 64, 0, torch.bfloat16, "bf16")
    launch("gru", 32, 0, torch.float32, "bf16x6")
    launch("m2rnn", 64, 16, torch.bfloat16, "bf16")


def launch_others() -> None:
    for name in ("rnn", "gru"):
        launch(name, 16, 0, torch.float32, "bf16x6")
        launch(name, 47, 0, torch.bfloat16, "bf16")
        launch(name, 64, 0, torch.float32, "tf32")
    launch("gru", 64, 0, torch.bfloat16, "bf16")
    launch("rnn", 128, 0, torch.bfloat16, "bf16")
    launch("rnn", 64, 0, torch.float32, "bf16x6")
    launch("rnn", 16, 0, torch.bfloat16, "bf16", rows=4300)
    launch("m2rnn_ungated", 64, 16, torch.bfloat16, "bf16")
    launch("m2rnn", 16, 16, torch.bfloat16, "bf16")
    launch("m2rnn", 64, 64, torch.bfloat16, "bf16")
    launch("m2rnn", 64, 32, torch.bfloat16, "bf16")
    launch("m2rnn", 32, 32, torch.float32, "tf32")


def launch_widest_and_narrowest() -> None:
    for name in OPS:
        launch(name, 1, 1, torch.float32, "tf32", rows=1, time=1, heads=1)
    for precision in ("bf16x6", "tf32"):
        launch("rnn", 128, 0, torch.float32, precision)
        launch("gru", 128, 0, torch.float32, precision)
        launch("m2rnn", 128, 128, torch.float32, precision)
    launch("gru", 128, 0, torch.bfloat16, "bf16")
    launch("gru", 64, 0, torch.float32, "bf16x6")
    launch("m2rnn", 64, 64, torch.float32, "bf16x6")


def test_usual_widths_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_recurrent_kernel:launch_usual")
    assert len(reports) >= 8
    assert misfits(reports) == []


@pytest.mark.slow
def test_other_widths_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_recurrent_kernel:launch_others")
    # Four registers may wait in memory from before all loops until after them.
    assert misfits(reports, 16) == []


@pytest.mark.slow
def test_the_widest_and_the_narrowest_fit_into_shared_memory() -> None:
    """Here values may spill into local memory."""
    reports = reports_of("tests.kernels.test_recurrent_kernel:launch_widest_and_narrowest")
    assert misfits(reports, math.inf) == []


def test_memory_is_poisoned() -> None:
    with poisoned():
        assert torch.isnan(torch.ones(3).new_empty((2, 2))).all()
