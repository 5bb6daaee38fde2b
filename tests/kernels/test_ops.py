"""The contract of every op: its parallel form is its definition, it reads in pieces, vmap lifts it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.kernels.cases import (
    BACKENDS,
    CASES,
    PARALLEL,
    TOLERANCES,
    Case,
    assert_near,
    weighted,
    with_gradients,
)

TIMES = [1, 2, 16, 63, 130]
each_backend = pytest.mark.parametrize(("case", "backend"), BACKENDS, ids=str)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("case", PARALLEL, ids=str)
def test_chunk_is_the_reference(case: Case, time: int, dtype: torch.dtype) -> None:
    """Output, last state and every gradient, both from the same rounded inputs."""
    inputs = [tensor.to(dtype) for tensor in case.draw(time)]
    wide = [tensor.to(torch.promote_types(dtype, torch.float32)) for tensor in inputs[-case.states :]]
    inputs[-case.states :] = wide
    got = with_gradients(case.run, inputs, "chunk")
    wanted = with_gradients(case.run, [tensor.double() for tensor in inputs], "reference")
    assert_near(got, wanted, TOLERANCES[dtype])


@each_backend
def test_gradients_are_those_of_finite_differences(case: Case, backend: str) -> None:
    inputs = [tensor.requires_grad_() for tensor in case.draw(5)]
    assert torch.autograd.gradcheck(
        lambda *tensors: case.run(tensors, backend), inputs, atol=1e-6, fast_mode=True
    )


@each_backend
@pytest.mark.parametrize("cuts", [(1,), (20, 41), (62,)], ids=str)
def test_pieces_are_the_whole(case: Case, backend: str, cuts: tuple[int, ...]) -> None:
    """Outputs, last state and every gradient when the state of a piece starts the next."""

    def in_pieces(inputs: Sequence[Tensor], backend: str) -> tuple[Tensor, ...]:
        fixed, state = inputs[case.along_time : -case.states], inputs[-case.states :]
        outputs = []
        for start, stop in zip((0, *cuts), (*cuts, 63), strict=True):
            piece = [tensor[:, start:stop] for tensor in inputs[: case.along_time]]
            output, *state = case.run([*piece, *fixed, *state], backend)
            outputs.append(output)
        return torch.cat(outputs, dim=1), *state

    inputs = case.draw(63)
    assert_near(
        with_gradients(in_pieces, inputs, backend), with_gradients(case.run, inputs, backend), tolerance=1e-10
    )


@each_backend
@pytest.mark.parametrize("time", [9, 20, 130])
def test_no_state_is_a_state_of_zeros(case: Case, backend: str, time: int) -> None:
    """A single chunk, or the first, does not read a state that is not there: output, state, gradients."""
    inputs = case.draw(time)
    start = inputs[: -case.states]
    zeros = [torch.zeros_like(tensor) for tensor in inputs[-case.states :]]
    none: list[Tensor | None] = [None] * case.states

    def from_nothing(inputs: Sequence[Tensor], backend: str) -> tuple[Tensor, ...]:
        return case.run([*inputs, *none], backend)

    def from_zeros(inputs: Sequence[Tensor], backend: str) -> tuple[Tensor, ...]:
        return case.run([*inputs, *zeros], backend)

    got, wanted = (with_gradients(run, start, backend) for run in (from_nothing, from_zeros))
    assert_near(got, wanted, tolerance=1e-13)


@each_backend
def test_outputs_do_not_see_the_future(case: Case, backend: str) -> None:
    inputs = case.draw(40)
    changed = [tensor.clone() for tensor in inputs]
    for tensor in changed[: case.along_time]:
        tensor[:, 23:] = tensor[:, 23:].flip(1) * 0.5
    one, other = case.run(inputs, backend)[0], case.run(changed, backend)[0]
    assert_near([one[:, :23]], [other[:, :23]], tolerance=1e-14)
    assert (one[:, 23:] - other[:, 23:]).abs().max() > 1e-3


@each_backend
def test_lanes_under_vmap_are_lone_runs(case: Case, backend: str) -> None:
    """Three lanes, each with inputs, weights and state of its own; outputs and gradients."""
    lanes = [case.draw(19) for _ in range(3)]
    stacked = [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(lambda *tensors: case.run(tensors, backend))(*stacked)
    loss = torch.stack([weighted([output[lane] for output in together]) for lane in range(3)]).sum()
    gradients = torch.autograd.grad(loss, stacked)
    for lane in range(3):
        got = [tensor[lane] for tensor in (*together, *gradients)]
        assert_near(got, with_gradients(case.run, lanes[lane], backend), tolerance=1e-12)


@each_backend
def test_sixteen_bit_inputs_keep_a_wide_state(case: Case, backend: str) -> None:
    inputs = [tensor.to(torch.bfloat16) for tensor in case.draw(7)]
    output, *state = case.run(inputs, backend)
    assert output.dtype == torch.bfloat16
    assert {tensor.dtype for tensor in state} == {torch.float32}
    assert {tensor.dtype for tensor in case.run(case.draw(7), backend)} == {torch.float64}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_shapes_and_backends_are_named(case: Case) -> None:
    inputs = case.draw(5)
    if case.along_time > 1:
        short = [*inputs[:1], inputs[1][:, :4], *inputs[2:]]
        with pytest.raises(ValueError, match=r"must be \[B, T, .*\] = \[2, 5, .*got \[2, 4, "):
            case.run(short, "auto")
    flat = [*inputs[:-1], inputs[-1][0]]
    with pytest.raises(ValueError, match=r"must be \[B, H.*\] = \[2, 3.*got \["):
        case.run(flat, "auto")
    empty = [tensor[:, :0] for tensor in inputs[: case.along_time]]
    with pytest.raises(ValueError, match="needs at least one step of time, got T = 0"):
        case.run([*empty, *inputs[case.along_time :]], "auto")
    with pytest.raises(ValueError, match="unknown backend 'cuda'; use auto, reference"):
        case.run(inputs, "cuda")
