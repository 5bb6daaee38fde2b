"""The Triton kernels of tanh RNN, GRU and M²RNN: their numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.offline import MAXIMUM_SHARED, reports_of
from tests.kernels.recurrent import OPS, Op, compare, launch, poisoned, total, with_gradients

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
@each_op
def test_numbers_in_bfloat16_beside_float32_gates(op: Op) -> None:
    options: dict[str, Any] = {"gradient_clip": 0.3, "clip_at": "total"}
    compare(op, op.inputs(1, 3, 2, 9, 7, dtype=torch.bfloat16), tolerance=2e-2, **options)


@interpreted
@each_op
def test_lanes_are_lone_runs(op: Op) -> None:
    """Two lanes under vmap, the first input and the state shared by both: outputs and every gradient."""
    lanes = [op.inputs(1, 3, 1, 4, 3, dtype=torch.float32) for _ in range(2)]
    shared = {0, len(lanes[0]) - 1}
    leaves = [
        (tensors[0] if place in shared else torch.stack(tensors)).detach().requires_grad_()
        for place, tensors in enumerate(zip(*lanes, strict=True))
    ]
    places = tuple(None if place in shared else 0 for place in range(len(leaves)))
    outputs = torch.func.vmap(lambda *inputs: op.run(*inputs, backend="triton"), in_dims=places)(*leaves)
    losses = [total([output[lane] for output in outputs]) for lane in range(2)]
    gradients = torch.autograd.grad(losses, leaves)
    lone = [
        with_gradients(
            op, [leaf if n in shared else leaf[lane] for n, leaf in enumerate(leaves)], backend="triton"
        )
        for lane in range(2)
    ]
    for place, (got, *wanted) in enumerate(zip([*outputs, *gradients], *lone, strict=True)):
        both = sum(wanted) if place - 2 in shared else torch.stack(wanted)
        torch.testing.assert_close(got, both, rtol=1e-6, atol=1e-6)


@interpreted
@pytest.mark.parametrize("name", ["gru", "m2rnn"])
def test_torch_compile_traces_it_whole(name: str) -> None:
    """Shapes of fake tensors, no break in the graph, and the same numbers."""
    op = OPS[name]
    inputs = op.inputs(1, 2, 1, 4, 3, dtype=torch.float32)
    compiled = torch.compile(
        lambda *tensors: op.run(*tensors, backend="triton"), backend="aot_eager", fullgraph=True
    )
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    outputs = compiled(*leaves)
    got = [*outputs, *torch.autograd.grad(total(outputs), leaves)]
    for one, other in zip(got, with_gradients(op, inputs, backend="triton"), strict=True):
        torch.testing.assert_close(one.detach(), other)


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
    assert [report for report in reports if report["stack"] or report["shared"] > MAXIMUM_SHARED] == []


@pytest.mark.slow
def test_other_widths_compile_for_hopper_without_spills() -> None:
    reports = reports_of("tests.kernels.test_recurrent_kernel:launch_others")
    assert [report for report in reports if report["stack"] or report["shared"] > MAXIMUM_SHARED] == []


@pytest.mark.slow
def test_the_widest_and_the_narrowest_fit_into_shared_memory() -> None:
    """Here values may spill into local memory."""
    reports = reports_of("tests.kernels.test_recurrent_kernel:launch_widest_and_narrowest")
    assert [report for report in reports if report["shared"] > MAXIMUM_SHARED] == []


def test_memory_is_poisoned() -> None:
    with poisoned():
        assert torch.isnan(torch.ones(3).new_empty((2, 2))).all()
