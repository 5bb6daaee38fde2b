"""What every kernel must do, whatever it computes: checks that the tests of several families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tests.kernels.graphs import eager_and_replayed


class Op(Protocol):
    """An op as a function from a list of tensors, of which the first is shared by lanes and the last is the state."""

    @property
    def run(self) -> Callable[..., tuple[Tensor, ...]]:
        """Outputs, then the last state."""

    def inputs(self, *shape: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
        """Drawn inputs for sizes B, T, H and two widths."""


def total(outputs: Sequence[Tensor]) -> Tensor:
    """A sum of all outputs whose gradient differs from entry to entry."""
    return sum(
        (output.double() * torch.arange(output.numel(), device=output.device).view(output.shape).sin()).sum()
        for output in outputs
    )  # type: ignore[return-value]


def gradients_of(run: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Outputs, and the gradient of their `total` for every input."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    outputs = run(*leaves)
    return [*(output.detach() for output in outputs), *torch.autograd.grad(total(outputs), leaves)]


def with_gradients(op: Op, inputs: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """Outputs, last state, and the gradient of `total` for every input."""
    return gradients_of(lambda *leaves: op.run(*leaves, **options), inputs)


def check_near(name: object, place: int, one: Tensor, other: Tensor, limit: float) -> None:
    """That a tensor is finite and within `limit`, in units of its largest entry, of what it should be."""
    assert one.shape == other.shape, place
    assert torch.isfinite(one).all(), f"{name}: tensor {place} is not finite"
    error = ((one.double() - other).abs().max() / other.abs().max().clamp_min(1e-6)).item()
    assert error <= limit, f"{name}: tensor {place}: relative error {error:.2e} > {limit:.0e}"


def check_lanes(op: Op, backend: str) -> None:
    """Two lanes under vmap, the first input and the state shared by both: outputs and every gradient."""
    lanes = [op.inputs(1, 3, 1, 4, 3, dtype=torch.float32) for _ in range(2)]
    shared = {0, len(lanes[0]) - 1}
    leaves = [
        (tensors[0] if place in shared else torch.stack(tensors)).detach().requires_grad_()
        for place, tensors in enumerate(zip(*lanes, strict=True))
    ]
    places = tuple(None if place in shared else 0 for place in range(len(leaves)))
    outputs = torch.func.vmap(lambda *inputs: op.run(*inputs, backend=backend), in_dims=places)(*leaves)
    losses = [total([output[lane] for output in outputs]) for lane in range(2)]
    gradients = torch.autograd.grad(losses, leaves)
    lone = [
        with_gradients(
            op, [leaf if n in shared else leaf[lane] for n, leaf in enumerate(leaves)], backend=backend
        )
        for lane in range(2)
    ]
    for place, (got, *wanted) in enumerate(zip([*outputs, *gradients], *lone, strict=True)):
        both = sum(wanted) if place - 2 in shared else torch.stack(wanted)
        torch.testing.assert_close(got, both, rtol=1e-6, atol=1e-6)


def check_traced_whole(op: Op, inputs: Sequence[Tensor], backend: str) -> None:
    """As torch.compile traces it: shapes of fake tensors, no break in the graph, and the same numbers."""
    # One function here serves every op, and torch gives up on one that it has had to compile too often.
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *tensors: op.run(*tensors, backend=backend), backend="aot_eager", fullgraph=True
    )
    got = gradients_of(compiled, inputs)
    for one, other in zip(got, with_gradients(op, inputs, backend=backend), strict=True):
        torch.testing.assert_close(one, other)


def check_unused_outputs(op: Op, inputs: Sequence[Tensor], backend: str) -> None:
    """Gradients through the output alone and through the last state alone."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    for place in range(2):
        got = torch.autograd.grad(op.run(*leaves, backend=backend)[place].sum(), leaves)
        wanted = torch.autograd.grad(
            op.run(*leaves, backend="reference")[place].sum(),
            leaves,
            allow_unused=True,
            materialize_grads=True,
        )
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def check_compiled_lanes(op: Op, lanes: Sequence[Sequence[Tensor]], backend: str, limit: float) -> None:
    """Lanes on a card under vmap and torch.compile, forward and backward captured in a CUDA graph and replayed, are
    lone runs."""
    torch.compiler.reset()
    run = torch.compile(torch.func.vmap(lambda *inputs: op.run(*inputs, backend=backend)), fullgraph=True)

    def stacked() -> list[Tensor]:
        return [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]

    def step(leaves: Sequence[Tensor]) -> list[Tensor]:
        outputs = run(*leaves)
        losses = [total([output[lane] for output in outputs]) for lane in range(len(lanes))]
        return [*outputs, *torch.autograd.grad(losses, leaves)]

    _, replayed = eager_and_replayed(stacked, step)
    for lane, inputs in enumerate(lanes):
        for one, other in zip(replayed, with_gradients(op, inputs, backend=backend), strict=True):
            error = (one[lane].double() - other.double()).abs().max() / other.double().abs().max()
            assert error.item() <= limit
