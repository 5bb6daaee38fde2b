"""Products whose sum is long and whose result is small, as weights' gradients are, divided into shorter sums.

Such a product keeps a graphics card busy with as many blocks as its result has tiles, a few for each lane, one term
after another. Cut along the sum, the pieces run side by side and their results are added in float32 or wider.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

TILE = 64
"""Rows and columns of a result that one block of a matrix library's kernel makes."""

BLOCKS = 512
"""Blocks wanted at once: four for each multiprocessor of a large card."""

SHORTEST = 256
"""Terms below which a sum is not divided further."""

TRANSPOSE = torch.ops.aten.transpose.int
VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.reshape.default)


@torch.library.custom_op("statelab::product_in_pieces", mutates_args=())
def product_in_pieces(left_NKM: Tensor, right_NKJ: Tensor, number: int, pieces: int) -> Tensor:
    """leftᵀ @ right for each of N, `[N, M, J]`, with its sum over K cut into so many pieces, which divide K.

    N and K of the factors may lie in any axes but the last, as `[N, B, T, M]`: so inductor, which would copy some
    views for a kernel of its own, need not make any.
    """
    one, other = (factor.reshape(number * pieces, -1, factor.shape[-1]) for factor in (left_NKM, right_NKJ))
    parts = torch.bmm(one.transpose(1, 2), other).unflatten(0, (number, pieces))
    wide = torch.promote_types(parts.dtype, torch.float32)
    total: Tensor = parts.sum(dim=1, dtype=wide)
    return total.to(parts.dtype)


@product_in_pieces.register_fake
def _(left_NKM: Tensor, right_NKJ: Tensor, number: int, pieces: int) -> Tensor:
    return left_NKM.new_empty(number, left_NKM.shape[-1], right_NKJ.shape[-1])


def divide_long_sums(module: GraphModule) -> int:
    """Replace every such product of a traced step on a CUDA device; how many there were."""
    products = [
        node for node in module.graph.nodes
        if node.target is torch.ops.aten.bmm.default and node.meta["val"].device.type == "cuda"
    ]  # fmt: skip
    return sum(divide(module, node) for node in products)


def divide(module: GraphModule, product: Node) -> bool:
    """Replace one product `[N, M, K] @ [N, K, J]` of a graph if its sum is long for its result."""
    left, right = product.args
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    N, M, K = left.meta["val"].shape
    pieces = pieces_of(N, M, right.meta["val"].shape[-1], K)
    if pieces == 1:
        return False
    graph = module.graph
    with graph.inserting_before(product):
        # A weight's gradient has a dense tensor of rows, turned, as its left factor.
        turned = left.target is TRANSPOSE and set(left.args[1:]) in ({1, 2}, {-1, -2})
        rows = left.args[0] if turned else graph.call_function(TRANSPOSE, (left, 1, 2))
        assert isinstance(rows, Node)
        factors = (_unviewed(rows), _unviewed(right), N, pieces)
        divided = graph.call_function(torch.ops.statelab.product_in_pieces.default, factors)
    product.replace_all_uses_with(divided)
    graph.erase_node(product)
    return True


def _unviewed(node: Node) -> Node:
    """The dense tensor of the same rows of which a node is a view, or the node."""
    while node.target in VIEWS:
        base = node.args[0]
        assert isinstance(base, Node)
        found = base.meta["val"]
        if not found.is_contiguous() or found.shape[-1] != node.meta["val"].shape[-1]:
            break
        node = base
    return node


def pieces_of(N: int, M: int, J: int, K: int) -> int:
    """Into how many pieces, a power of two, the sum over K of N results `[M, J]` is divided."""
    blocks, pieces = N * -(-M // TILE) * -(-J // TILE), 1
    while blocks * pieces < BLOCKS and K % (2 * pieces) == 0 and K // (2 * pieces) >= SHORTEST:
        pieces *= 2
    return pieces
