"""Products whose sum is long and whose result is small, as weights' gradients are, divided into shorter sums.

Such a product keeps a graphics card busy with as many blocks as its result has tiles, a few for each lane, one term
after another. Cut along the sum, the pieces run side by side and their results are added in float32 or wider.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

TILE = 64
"""Rows and columns of a result that one block of a matrix library's kernel makes."""

BLOCKS = 512
"""Blocks wanted at once: four for each multiprocessor of a large card."""

SHORTEST = 256
"""Terms below which a sum is not divided further."""


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
    aten, graph = torch.ops.aten, module.graph
    J, short = right.meta["val"].shape[-1], K // pieces
    with graph.inserting_before(product):
        rows = _transposed(left)
        if rows is None:
            one = graph.call_function(aten.view.default, (left, [N, M, pieces, short]))
            one = graph.call_function(aten.permute.default, (one, [0, 2, 1, 3]))
            one = graph.call_function(aten.reshape.default, (one, [N * pieces, M, short]))
        else:
            # A weight's gradient: its left factor is a dense tensor of rows, turned. Cut before it is turned, it is
            # a view for inductor too, which would otherwise copy it.
            one = graph.call_function(aten.view.default, (rows, [N * pieces, short, M]))
            one = graph.call_function(aten.permute.default, (one, [0, 2, 1]))
        other = graph.call_function(aten.reshape.default, (right, [N * pieces, short, J]))
        parts = graph.call_function(aten.bmm.default, (one, other))
        parts = graph.call_function(aten.view.default, (parts, [N, pieces, M, J]))
        dtype = product.meta["val"].dtype
        wide = torch.promote_types(dtype, torch.float32)
        total = graph.call_function(aten.sum.dim_IntList, (parts, [1]), {"dtype": wide})
        if wide != dtype:
            total = graph.call_function(aten._to_copy.default, (total,), {"dtype": dtype})
    product.replace_all_uses_with(total)
    graph.erase_node(product)
    return True


def _transposed(left: Node) -> Node | None:
    """The dense `[N, K, M]` of which a node is the transpose, or None."""
    if left.target is not torch.ops.aten.transpose.int or set(left.args[1:]) not in ({1, 2}, {-1, -2}):
        return None
    rows = left.args[0]
    assert isinstance(rows, Node)
    return rows if rows.meta["val"].is_contiguous() else None


def pieces_of(N: int, M: int, J: int, K: int) -> int:
    """Into how many pieces, a power of two, the sum over K of N results `[M, J]` is divided."""
    blocks, pieces = N * -(-M // TILE) * -(-J // TILE), 1
    while blocks * pieces < BLOCKS and K % (2 * pieces) == 0 and K // (2 * pieces) >= SHORTEST:
        pieces *= 2
    return pieces
