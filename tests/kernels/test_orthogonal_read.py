"""The orthogonal read against a plain loop, its limit, and what it does to singular values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from statelab.kernels.orthogonal_read import orthogonal_read
from statelab.kernels.recompute import recompute
from tests.kernels.cases import assert_near, normal


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def naive(memory: Tensor, q: Tensor, iterations: int) -> Tensor:
    """One matrix at a time, in the paper's form X ← X (3 I − Xᵀ X) / 2."""
    reads = []
    for one, query in zip(memory.flatten(0, -3), q.flatten(0, -2), strict=True):
        x = one / max(float(one.square().sum().sqrt()), 1e-6)
        for _ in range(iterations):
            x = x @ (3 * torch.eye(x.shape[1], dtype=x.dtype) - x.T @ x) / 2
        reads.append(x.T @ query)
    return torch.stack(reads).view(*q.shape[:-1], memory.shape[-1])


@pytest.mark.parametrize("iterations", [0, 1, 5])
@pytest.mark.parametrize(("keys", "values"), [(9, 7), (7, 9), (1, 3)], ids=str)
def test_it_is_the_naive_loop(keys: int, values: int, iterations: int) -> None:
    memory, q = normal(2, 3, keys, values), normal(2, 3, keys)
    assert_near([orthogonal_read(memory, q, iterations)], [naive(memory, q, iterations)], 1e-13)


@pytest.mark.parametrize(("keys", "values"), [(8, 8), (9, 7)], ids=str)
def test_its_limit_is_the_polar_factor(keys: int, values: int) -> None:
    memory, q = normal(4, keys, values), normal(4, keys)
    left, _, right = torch.linalg.svd(memory, full_matrices=False)
    wanted = (q.unsqueeze(-2) @ left @ right).squeeze(-2)
    assert_near([orthogonal_read(memory, q, 60)], [wanted], 1e-12)


def test_a_memory_of_rank_one_is_read_at_full_strength_whatever_its_size() -> None:
    key, value = (
        torch.nn.functional.normalize(normal(6), dim=0),
        torch.nn.functional.normalize(normal(5), dim=0),
    )
    for size in (1e-3, 1.0, 1e4):
        assert_near([orthogonal_read(size * torch.outer(key, value), key)], [value], 1e-12)


def test_five_iterations_lift_a_small_singular_value_by_at_most_1_5_to_the_5th() -> None:
    diagonal = torch.tensor([1.0, 1e-4], dtype=torch.float64)
    read = orthogonal_read(torch.diag(diagonal), torch.eye(2, dtype=torch.float64)[1])
    assert float(read[1]) == pytest.approx(1e-4 * 1.5**5, rel=1e-6)


def test_a_memory_of_zeros_reads_zero_and_its_gradient_is_finite() -> None:
    memory = torch.zeros(2, 4, 3, dtype=torch.float64, requires_grad=True)
    q = normal(2, 4)
    read = orthogonal_read(memory, q)
    (gradient,) = torch.autograd.grad(read.sum(), memory)
    assert not read.any()
    # Under the floor of the norm, X is C / 1e-6, and each iteration multiplies what is small by 1.5.
    assert_near([gradient], [(q * 1.5**5 / 1e-6).unsqueeze(-1).expand(2, 4, 3)], 1e-12)


def test_its_gradient_is_that_of_finite_differences() -> None:
    inputs = (normal(2, 4, 3).requires_grad_(), normal(2, 4).requires_grad_())
    assert torch.autograd.gradcheck(orthogonal_read, inputs)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"memory must be .* got \[2, 5, 3\]"):
        orthogonal_read(normal(2, 5, 3), normal(2, 4))
    with pytest.raises(ValueError, match="iterations must be >= 0, got -1"):
        orthogonal_read(normal(2, 4, 3), normal(2, 4), -1)


def test_recompute_is_the_function_and_keeps_its_inputs_alone() -> None:
    inputs = (normal(2, 4, 3).requires_grad_(), normal(2, 4).requires_grad_())
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        got = recompute(orthogonal_read, *inputs)
    assert {tensor.data_ptr() for tensor in kept} == {tensor.data_ptr() for tensor in inputs}
    wanted = orthogonal_read(*inputs)
    assert torch.equal(got, wanted)
    weights = normal(*got.shape)
    gradients = [torch.autograd.grad((read * weights).sum(), inputs) for read in (got, wanted)]
    assert_near(gradients[0], gradients[1], 0)


def test_recompute_under_vmap_takes_lanes_and_what_lanes_share() -> None:
    memory, q = normal(3, 2, 4, 3).requires_grad_(), normal(2, 4).requires_grad_()

    def read(memory: Tensor, q: Tensor) -> Tensor:
        return recompute(orthogonal_read, memory, q)

    got = torch.func.vmap(read, in_dims=(0, None))(memory, q)
    wanted = torch.stack([orthogonal_read(lane, q) for lane in memory])
    weights = normal(*got.shape)
    gradients = [torch.autograd.grad((out * weights).sum(), (memory, q)) for out in (got, wanted)]
    assert_near([got, *gradients[0]], [wanted, *gradients[1]], 1e-13)
