"""The Triton mLSTM on a card against the float64 reference, by programs that own chunks and that own sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from tests.kernels.cases import assert_near, run_mlstm
from tests.kernels.graphs import eager_and_replayed
from tests.kernels.mlstm import PROGRAMS, TOLERANCES, WIDTHS, compare, draw

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


@PROGRAMS
@pytest.mark.parametrize("precision", ["bf16", "tf32", "bf16x3", "bf16x6"])
@pytest.mark.parametrize(("K", "V"), WIDTHS, ids=lambda width: str(width))
def test_every_width_and_precision_on_a_gpu(K: int, V: int, precision: str, programs: str) -> None:
    if programs == "sequences" and max(K, V) > 64:
        pytest.skip("programs own sequences of head widths up to 64")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    # max(|n·q|, e^−m) has a kink: of 780 steps one or the other lies so near that tf32 takes its other side, with
    # another gradient. (Products of bfloat16 inputs are exact.)
    normaliser = precision != "tf32"
    options = {"precision": precision, "normaliser": normaliser, "programs": programs}
    compare(draw(130, K, V), TOLERANCES[precision], dtype, **options)


@PROGRAMS
@pytest.mark.parametrize("normaliser", [True, False], ids=["normalised", "raw"])
@pytest.mark.parametrize("time", [1, 31, 32, 63, 64, 257])
def test_odd_times_on_a_gpu(time: int, normaliser: bool, programs: str) -> None:
    inputs, precision = draw(time, 48, 48), "bf16x6"
    compare(inputs, TOLERANCES[precision], normaliser=normaliser, precision=precision, programs=programs)


@pytest.mark.parametrize(("K", "V"), [(32, 32), (47, 48)], ids=lambda width: str(width))
def test_many_sequences_on_a_gpu(K: int, V: int) -> None:
    """As many as `auto` gives a program each, several to a multiprocessor."""
    compare(draw(130, K, V, heads=2, rows=600), TOLERANCES["bf16"], torch.bfloat16, precision="bf16")


@PROGRAMS
@pytest.mark.parametrize(
    ("place", "by", "tolerance"),
    [(3, 30.0, 1e-3), (3, -30.0, 1e-3), (4, 40.0, 1e-3), (4, -20.0, 3e-2)],
    ids=str,
)
def test_gates_far_out_on_a_gpu(place: int, by: float, tolerance: float, programs: str) -> None:
    """A forget gate that is shut has a gradient of 1e-7 of the others', a difference of sums."""
    inputs = draw(130, 32, 32)
    inputs[place] += by
    compare(inputs, tolerance, precision="bf16x6", programs=programs)


@PROGRAMS
def test_lanes_captured_in_a_graph(programs: str) -> None:
    run = run_mlstm(precision="bf16x6", programs=programs)
    lifted = torch.func.vmap(lambda *tensors: run(tensors, "triton"))

    def step(leaves: Sequence[Tensor]) -> list[Tensor]:
        outputs = lifted(*leaves)
        return [*outputs, *torch.autograd.grad([output.sum() for output in outputs], leaves)]

    def stacked() -> list[Tensor]:
        return [torch.stack([tensor.float()] * 2).requires_grad_() for tensor in draw(130, 32, 32)]

    assert_near(*eager_and_replayed(stacked, step), 1e-6)


@PROGRAMS
def test_a_compiled_step_is_the_eager_one(programs: str) -> None:
    torch.compiler.reset()
    inputs = [torch.stack([tensor.float()] * 2) for tensor in draw(66, 32, 32)]
    run_one = run_mlstm(precision="bf16x6", programs=programs)
    lifted = torch.func.vmap(lambda *tensors: run_one(tensors, "triton")[0])
    compiled = torch.compile(lambda *tensors: lifted(*tensors).square().sum(), fullgraph=True)
    results = []
    for run in (compiled, lambda *tensors: lifted(*tensors).square().sum()):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
        loss = run(*leaves)
        results.append([loss, *torch.autograd.grad(loss, leaves)])
    assert_near(results[0], results[1], 1e-5)
