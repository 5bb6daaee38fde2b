"""The orthogonal read against a plain loop, its limit, and what it does to singular values."""

from __future__ import annotations

from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor

from statelab.kernels.orthogonal_read import Factor, choose_read_precision, orthogonal_read
from statelab.kernels.orthogonal_read.polar import polar
from statelab.kernels.recompute import recompute
from tests.kernels.cases import assert_near, normal


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def naive(memory: Tensor, q: Tensor, iterations: int, factor: str = "cubic") -> Tensor:
    """One matrix at a time: X ← X (3 I − Xᵀ X) / 2, or Muon's X ← a X + (b A + c A²) X with A = X Xᵀ."""
    reads = []
    for one, query in zip(memory.flatten(0, -3), q.flatten(0, -2), strict=True):
        x = one / max(float(one.square().sum().sqrt()), 1e-6)
        for _ in range(iterations):
            gram = x @ x.T
            if factor == "quintic":
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
            else:
                x = x @ (3 * torch.eye(x.shape[1], dtype=x.dtype) - x.T @ x) / 2
        reads.append(x.T @ query)
    return torch.stack(reads).view(*q.shape[:-1], memory.shape[-1])


@pytest.mark.parametrize("factor", ["cubic", "quintic"])
@pytest.mark.parametrize("iterations", [0, 1, 5])
@pytest.mark.parametrize(("keys", "values"), [(9, 7), (7, 9), (1, 3)], ids=str)
def test_it_is_the_naive_loop(
    keys: int, values: int, iterations: int, factor: Literal["cubic", "quintic"]
) -> None:
    memory, q = normal(2, 3, keys, values), normal(2, 3, keys)
    got = orthogonal_read(memory, q, iterations, factor=factor)
    assert_near([got], [naive(memory, q, iterations, factor)], 1e-12)


@pytest.mark.parametrize(("keys", "values"), [(8, 8), (9, 7)], ids=str)
def test_its_limit_is_the_polar_factor(keys: int, values: int) -> None:
    memory, q = normal(4, keys, values), normal(4, keys)
    left, _, right = torch.linalg.svd(memory, full_matrices=False)
    wanted = (q.unsqueeze(-2) @ left @ right).squeeze(-2)
    assert_near([orthogonal_read(memory, q, 60)], [wanted], 1e-12)
    assert_near([orthogonal_read(memory, q, factor="polar")], [wanted], 1e-12)


def test_muons_iteration_takes_singular_values_near_1_and_no_further() -> None:
    diagonal = torch.linspace(0.01, 1, 50, dtype=torch.float64)
    read = orthogonal_read(torch.diag(diagonal), torch.ones(50, dtype=torch.float64), 5, factor="quintic")
    assert read[3:].min() > 0.6
    assert read.max() < 1.25


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


@pytest.mark.parametrize("factor", ["cubic", "quintic", "polar"])
def test_its_gradient_is_that_of_finite_differences(factor: Factor) -> None:
    for shape in ((2, 4, 3), (2, 4, 6)):
        inputs = (normal(*shape).requires_grad_(), normal(2, 4).requires_grad_())
        assert torch.autograd.gradcheck(partial(orthogonal_read, factor=factor), inputs)


@pytest.mark.parametrize("factor", ["cubic", "quintic", "polar"])
def test_straight_through_forward_puts_out_one_read_and_differentiates_the_other(factor: Factor) -> None:
    """y = Xᵀ q; dC = q gᵀ, the plain read's; dq = X g."""
    memory, q, g = normal(2, 4, 3).requires_grad_(), normal(2, 4).requires_grad_(), normal(2, 3)
    y = orthogonal_read(memory, q, 3, factor=factor, straight_through="forward")
    dC, dq = torch.autograd.grad((y * g).sum(), (memory, q))
    whole = orthogonal_read(memory, q, 3, factor=factor)
    assert_near([y], [whole], 0)
    (through_q,) = torch.autograd.grad((whole * g).sum(), q)
    assert_near([dC, dq], [q.unsqueeze(-1) * g.unsqueeze(-2), through_q], 1e-14)


@pytest.mark.parametrize("factor", ["cubic", "quintic", "polar"])
def test_straight_through_backward_puts_out_the_plain_read(factor: Factor) -> None:
    """y = Cᵀ q; dC is the orthogonal read's; dq = C g."""
    memory, q, g = normal(2, 4, 3).requires_grad_(), normal(2, 4).requires_grad_(), normal(2, 3)
    y = orthogonal_read(memory, q, 3, factor=factor, straight_through="backward")
    dC, dq = torch.autograd.grad((y * g).sum(), (memory, q))
    whole = orthogonal_read(memory, q, 3, factor=factor)
    (through_C,) = torch.autograd.grad((whole * g).sum(), memory)
    wanted = (torch.einsum("bkv,bk->bv", memory, q), through_C, torch.einsum("bkv,bv->bk", memory, g))
    assert_near([y, dC, dq], wanted, 1e-14)


def test_the_polar_gradient_at_the_identity_is_the_antisymmetric_part() -> None:
    """All singular values equal, where the gradient of an SVD is not finite."""
    identity = torch.eye(5, dtype=torch.float64, requires_grad=True)
    weights = normal(5, 5)
    (gradient,) = torch.autograd.grad((polar(3 * identity) * weights).sum(), identity)
    assert_near([gradient], [(weights - weights.T) / 2], 1e-12)


def test_the_polar_factor_of_a_matrix_that_lacks_rank() -> None:
    """A partial isometry; its gradient is that of finite differences along what keeps the rank."""
    left, right = normal(6, 2), normal(2, 5)

    def made(left: Tensor, right: Tensor) -> Tensor:
        return polar(left @ right)

    factor = made(left, right)
    u, s, v = torch.linalg.svd(left @ right)
    assert s[2] < 1e-12
    assert_near([factor], [u[:, :2] @ v[:2]], 1e-12)
    assert torch.autograd.gradcheck(made, (left.requires_grad_(), right.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_polar_gradient_is_bounded_wherever_a_memory_has_been(dtype: torch.dtype) -> None:
    for matrix in (torch.zeros(4, 3), torch.outer(torch.ones(4), torch.ones(3)), torch.eye(4, 3)):
        for size in (1e-8, 1.0, 1e8):
            leaf = (matrix * size + 1e-3 * size * (1 + 1e-6) * torch.eye(4, 3)).to(dtype).requires_grad_()
            (gradient,) = torch.autograd.grad(polar(leaf).sum(), leaf)
            assert gradient.dtype == dtype
            assert gradient.norm() <= 2e3 * 12**0.5 / leaf.detach().norm()


def test_the_polar_gradient_is_exact_on_both_sides_of_its_threshold() -> None:
    """Singular values of 1, 1.2e-3 and 0.8e-3: the second is read, the third is not, and they turn each other."""
    left, right = (torch.linalg.qr(normal(3, 3)).Q for _ in range(2))
    matrix = left @ torch.diag(torch.tensor([1.0, 1.2e-3, 0.8e-3], dtype=torch.float64)) @ right
    assert torch.linalg.matrix_rank(polar(matrix)) == 2
    assert torch.autograd.gradcheck(polar, matrix.requires_grad_(), eps=1e-6, atol=0.02, rtol=1e-3)


def test_a_memory_that_is_not_finite_leaves_the_others_alone() -> None:
    memory, q = normal(2, 4, 3), normal(2, 4)
    broken = memory.clone()
    broken[0, 1, 2] = torch.nan
    read = orthogonal_read(broken.requires_grad_(), q, factor="polar")
    (gradient,) = torch.autograd.grad(read[1].sum(), broken)
    assert read[0].isnan().all()
    assert_near([read[1], gradient[1]], [orthogonal_read(memory, q, factor="polar")[1], gradient[1]], 1e-13)


def test_polar_under_vmap_is_polar_in_a_batch() -> None:
    matrices = normal(3, 2, 4, 6).requires_grad_()
    weights = normal(3, 2, 4, 6)
    got = torch.func.vmap(polar, in_dims=1, out_dims=1)(matrices)
    gradients = [torch.autograd.grad((out * weights).sum(), matrices)[0] for out in (got, polar(matrices))]
    assert_near([got, gradients[0]], [polar(matrices), gradients[1]], 1e-13)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"memory must be .* got \[2, 5, 3\]"):
        orthogonal_read(normal(2, 5, 3), normal(2, 4))
    with pytest.raises(ValueError, match="iterations must be >= 0, got -1"):
        orthogonal_read(normal(2, 4, 3), normal(2, 4), -1)
    with pytest.raises(ValueError, match="unknown factor 'muon'; use cubic, quintic or polar"):
        orthogonal_read(normal(2, 4, 3), normal(2, 4), factor="muon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown straight_through 'both'; use off, forward or backward"):
        orthogonal_read(normal(2, 4, 3), normal(2, 4), straight_through="both")  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("factor", "precision", "iterations", "chosen"),
    [
        ("cubic", "auto", 5, "fp16"),
        ("cubic", "auto", 40, "bf16"),
        ("quintic", "auto", 5, "bf16x3"),
        ("quintic", "bf16x6", 5, "bf16x6"),
    ],
)
def test_the_precision_of_a_read(factor: str, precision: str, iterations: int, chosen: str) -> None:
    assert choose_read_precision(factor, precision, iterations) == chosen
