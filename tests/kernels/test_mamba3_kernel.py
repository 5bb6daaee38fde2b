"""Mamba-3's fused Triton kernels: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from statelab.kernels.mamba3 import mamba3
from tests.kernels.checks import (
    check_lanes,
    check_near,
    check_traced_whole,
    check_unused_outputs,
    gradients_of,
)
from tests.kernels.matrix import (
    TOLERANCES,
    Op,
    compare,
    draw_mamba3,
    launch,
    poisoned,
    run_mamba3,
)
from tests.kernels.offline import misfits, reports_of

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def op_of(ranks: int) -> Op:
    return Op(f"mamba3_{ranks}", run_mamba3, draw_mamba3(ranks), gates=(1, 2, 3, 4), states=4)


@interpreted
@pytest.mark.parametrize(
    ("ranks", "time", "states", "width"),
    [
        pytest.param(1, 1, 16, 5, id="one-step"),
        pytest.param(1, 37, 9, 7, id="chunks-and-an-odd-state"),
        pytest.param(2, 17, 24, 7, id="two-ranks"),
        pytest.param(3, 13, 16, 5, id="ranks-that-do-not-fill-a-chunk"),
        pytest.param(4, 9, 16, 67, id="blocks-of-head-width"),
        pytest.param(1, 17, 64, 3, id="a-wide-state"),
    ],
)
def test_numbers_in_float32(ranks: int, time: int, states: int, width: int) -> None:
    """Outputs, all parts of the last state and every gradient, from a given state."""
    op = op_of(ranks)
    compare(op, op.inputs(2, time, 2, states, width, dtype=torch.float32), "ieee")


@interpreted
@pytest.mark.parametrize("ranks", [1, 4])
def test_numbers_in_bfloat16_beside_float32_gates(ranks: int) -> None:
    op = op_of(ranks)
    compare(op, op.inputs(1, 70 // ranks, 2, 16, 7, dtype=torch.bfloat16), "bf16")


@interpreted
@pytest.mark.parametrize("rotating", [True, False])
@pytest.mark.parametrize("trapezoid", [True, False])
def test_parts_may_be_left_out_and_the_state_too(trapezoid: bool, rotating: bool) -> None:
    inputs = op_of(2).inputs(1, 19, 2, 8, 3, dtype=torch.float32)[:7]
    present = [n for n in range(7) if (n != 3 or trapezoid) and (n != 4 or rotating)]

    def run(backend: str) -> list[Tensor]:
        def op(*leaves: Tensor) -> tuple[Tensor, ...]:
            given = dict(zip(present, leaves, strict=True))
            y, after = mamba3(*map(given.get, range(7)), backend=backend)  # type: ignore[arg-type]
            assert (after[0] == (), after[1] == (), after[2] == ()) == (
                not rotating,
                not trapezoid,
                not trapezoid,
            )
            return y, *(part for part in after if isinstance(part, Tensor))

        wide = torch.float64 if backend == "reference" else torch.float32
        return gradients_of(op, [inputs[n].to(wide) for n in present])

    with poisoned():
        got = run("triton")
    for place, (one, other) in enumerate(zip(got, run("reference"), strict=True)):
        check_near("mamba3", place, one, other, TOLERANCES["ieee"])


@interpreted
def test_no_pairs_are_no_rotation() -> None:
    x, decay, step, weight, angle, write, read, *_ = op_of(1).inputs(1, 5, 1, 4, 3, dtype=torch.float32)
    none = angle[..., :0]
    y, after = mamba3(x, decay, step, weight, none, write, read, backend="triton")
    wanted, _ = mamba3(x, decay, step, weight, None, write, read, backend="triton")
    assert torch.equal(y, wanted)
    assert isinstance(after[0], Tensor)
    assert after[0].shape == (1, 1, 0)


@interpreted
def test_decays_of_nothing_and_of_all() -> None:
    """Log decays of −∞ and of 0 among the others."""
    op = op_of(1)
    inputs = op.inputs(1, 40, 2, 8, 3, dtype=torch.float32)
    inputs[1][0, 7], inputs[1][0, 20] = -torch.inf, -1000
    inputs[1][0, 25:] = 0
    compare(op, inputs, "ieee")


@interpreted
def test_phases_keep_their_digits() -> None:
    """Over 1,000 steps, one pair by π at each, which a float32 is not, and one by some 300 turns."""
    time = 1000
    angle = torch.stack((torch.full((time,), math.pi), 2000 * torch.rand(time)), dim=-1).view(1, time, 1, 2)
    ones = torch.ones(1, time, 1)
    pair = torch.ones(1, time, 1, 1, 4)
    with torch.no_grad():
        _, (phase, before, *_) = mamba3(
            ones.view(1, time, 1, 1, 1), -50 * ones, ones, ones, angle, pair, pair, backend="triton"
        )
    turned = angle.double().sum(dim=1).remainder(2 * math.pi)
    assert isinstance(phase, Tensor)
    assert isinstance(before, Tensor)
    torch.testing.assert_close(phase.double(), turned, rtol=0, atol=1e-5)
    wanted = torch.stack((turned.cos() - turned.sin(), turned.cos() + turned.sin()), dim=-1).flatten()
    torch.testing.assert_close(before.double().flatten(), wanted, rtol=0, atol=1e-5)


@interpreted
def test_angles_that_are_not_finite_are_seen() -> None:
    inputs = op_of(1).inputs(1, 5, 1, 8, 3, dtype=torch.float32)
    inputs[4][0, 2, 0, 0] = torch.inf
    with np.errstate(invalid="ignore"):
        y = run_mamba3(*inputs, backend="triton")[0]
    assert y[:, 2:].isnan().all()


@interpreted
@pytest.mark.parametrize("ranks", [1, 2])
def test_lanes_are_lone_runs(ranks: int) -> None:
    check_lanes(Op("joined", run_joined, draw_mamba3(ranks), gates=(1, 2, 3, 4), states=4), "triton")


def run_joined(*inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """The state's parts as one."""
    y, *after = run_mamba3(*inputs, **options)
    return y, torch.cat([part.flatten(1) for part in after], dim=1)


@interpreted
def test_a_graph_of_fake_tensors_has_the_shapes() -> None:
    """With a state and without one."""
    inputs = op_of(2).inputs(1, 3, 1, 4, 3, dtype=torch.float32)
    fresh = Op("fresh", run_fresh, draw_mamba3(2), gates=(1, 2, 3, 4), states=4)
    check_traced_whole(op_of(2), inputs, "triton")
    check_traced_whole(fresh, inputs[:7], "triton")


def run_fresh(*inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    y, after = mamba3(*inputs, **options)  # type: ignore[arg-type]
    return y, *after  # type: ignore[return-value]


@interpreted
def test_one_of_two_outputs_may_go_unused() -> None:
    """Gradients of the output alone and of the state alone; and values without gradients."""
    inputs = op_of(1).inputs(1, 3, 1, 4, 3, dtype=torch.float32)
    check_unused_outputs(
        Op("joined", run_joined, draw_mamba3(1), gates=(1, 2, 3, 4), states=4), inputs, "triton"
    )
    with torch.no_grad(), poisoned():
        got = run_mamba3(*inputs, backend="triton")
    torch.testing.assert_close(got, run_mamba3(*inputs, backend="reference"), rtol=1e-4, atol=1e-4)


@interpreted
def test_more_ranks_than_a_chunk_has_rows() -> None:
    """They go over Mamba-2's kernel."""
    op = op_of(17)
    compare(op, op.inputs(1, 2, 1, 4, 3, dtype=torch.float32), "ieee")


def launch_usual() -> None:
    launch("mamba3_siso", 32, 32, "bf16")


def launch_others() -> None:
    for states, width in ((16, 16), (16, 64), (64, 32), (64, 64)):
        launch("mamba3_siso", states, width, "bf16")
    launch("mamba3_mimo", 64, 64, "bf16")


def launch_precise() -> None:
    for precision in ("tf32", "bf16x6"):
        launch("mamba3_siso", 64, 64, precision)
    launch("mamba3_siso", 128, 64, "bf16x6")


def test_usual_widths_compile_for_hopper_all_but_without_spills() -> None:
    reports = reports_of("tests.kernels.test_mamba3_kernel:launch_usual")
    names = ["ends_kernel", "forward_kernel", "gradients_kernel", "turn_kernel"]
    assert sorted(report["name"] for report in reports) == names
    assert misfits(reports, 8, chunk=168) == []


@pytest.mark.slow
def test_other_widths_compile_for_hopper() -> None:
    reports = reports_of("tests.kernels.test_mamba3_kernel:launch_others")
    assert misfits(reports, 24, chunk=256) == []


@pytest.mark.slow
def test_precise_products_fit_into_shared_memory() -> None:
    """Here values may spill into local memory."""
    reports = reports_of("tests.kernels.test_mamba3_kernel:launch_precise")
    assert misfits(reports, math.inf) == []
