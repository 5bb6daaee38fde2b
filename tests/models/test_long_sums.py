"""Products with long sums, divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from statelab.models.long_sums import divide, divide_long_sums, pieces_of


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ((24, 64, 192, 8192), 8),
        ((1, 64, 64, 8192), 32),
        ((24, 400, 192, 32768), 2),
        ((1, 64, 64, 300), 1),
        ((1, 64, 64, 8191), 1),
        ((600, 64, 64, 8192), 1),
    ],
)
def test_as_many_pieces_as_fill_a_card(sizes: tuple[int, int, int, int], pieces: int) -> None:
    assert pieces_of(*sizes) == pieces


def weights_gradient(x_RBTI: Tensor, dy_RBTO: Tensor) -> Tensor:
    return torch.bmm(x_RBTI.flatten(1, 2).transpose(1, 2), dy_RBTO.flatten(1, 2))


def other_order(x_RBTI: Tensor, dy_RBTO: Tensor) -> Tensor:
    """The same product of a left factor that is no transpose of a dense tensor."""
    return torch.bmm(x_RBTI.permute(0, 3, 1, 2).flatten(2), dy_RBTO.flatten(1, 2))


@pytest.mark.parametrize("product_of", [weights_gradient, other_order])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.bfloat16, 1e-2)], ids=str)
def test_a_divided_product_is_the_product(
    product_of: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    x, dy = torch.randn(3, 16, 64, 10, dtype=dtype), torch.randn(3, 16, 64, 7, dtype=dtype)
    traced = make_fx(product_of, tracing_mode="fake")(x, dy)
    (product,) = [node for node in traced.graph.nodes if node.target is torch.ops.aten.bmm.default]
    assert divide(traced, product)
    traced.graph.lint()
    traced.recompile()
    got, wanted = traced(x, dy), weights_gradient(x.double(), dy.double())
    assert got.dtype == dtype
    assert ((got.double() - wanted).norm() / wanted.norm()).item() < tolerance


def test_factors_are_taken_where_they_lie() -> None:
    x, dy = torch.randn(3, 16, 64, 10), torch.randn(3, 16, 64, 7)
    traced = make_fx(weights_gradient, tracing_mode="fake")(x, dy)
    (product,) = [node for node in traced.graph.nodes if node.target is torch.ops.aten.bmm.default]
    assert divide(traced, product)
    (divided,) = [
        node for node in traced.graph.nodes if node.target is torch.ops.statelab.product_in_pieces.default
    ]
    assert [node.op for node in divided.args[:2]] == ["placeholder"] * 2


def test_products_of_a_cpu_are_left_alone() -> None:
    x = torch.randn(3, 16, 64, 10)
    traced = make_fx(weights_gradient, tracing_mode="fake")(x, x)
    assert divide_long_sums(traced) == 0
