"""Products of many elements of a group, by look-ups in tables.

Legend: G elements of a group, T length, S swaps; K elements to a block, V = G^K blocks, W = T / K of a row.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from statelab.tasks.groups import cayley_table, order, swaps

_BLOCK_ENTRIES = 1 << 15
"""How many entries the table of blocks may have: 256 kB stay in a CPU's cache."""
_CPU_ELEMENTS = 1 << 17
"""Elements worked on at once on a CPU, likewise."""


def prefix_products(group: str, x: Tensor) -> Tensor:
    """x_0 · x_1 · … · x_t for every t of these elements, int64 `[..., T]` like `x`."""
    G, T = order(group), x.shape[-1]
    K = 1
    while G ** (K + 2) * (K + 1) <= _BLOCK_ENTRIES:
        K += 1
    table_GG, blocks = table_on(group, x.device), blocks_on(group, K, x.device)
    rows = x.reshape(-1, T)
    if x.device.type != "cpu" or x.numel() <= _CPU_ELEMENTS:
        return _by_blocks(table_GG, blocks, rows).view(x.shape)
    pieces = rows.split(max(1, _CPU_ELEMENTS // T))
    return torch.cat([_by_blocks(table_GG, blocks, piece) for piece in pieces]).view(x.shape)


def _by_blocks(table_GG: Tensor, blocks_GVK: Tensor, x: Tensor) -> Tensor:
    """Read K elements at a time: what came before a block and which it is say what is after each of them."""
    G, V, K = blocks_GVK.shape
    T = x.shape[-1]
    if K == 1:
        return _prefixes(table_GG.flatten(), G, x)
    padded = torch.nn.functional.pad(x, (0, -T % K)) if T % K else x
    block_W = padded[..., ::K]
    for k in range(1, K):
        block_W = padded[..., k::K].add(block_W, alpha=G)
    whole_W = blocks_GVK[0, :, -1].index_select(0, block_W.flatten()).view(block_W.shape)
    block_W[..., 1:].add_(_prefixes(table_GG.flatten(), G, whole_W)[..., :-1], alpha=V)
    after_WK = blocks_GVK.flatten(0, 1).index_select(0, block_W.flatten())
    return after_WK.view(padded.shape)[..., :T].contiguous()


def _prefixes(flat: Tensor, G: int, x: Tensor) -> Tensor:
    """The same two by two: neighbours are multiplied, then the prefixes of those products found.

    Each of these is the prefix at an odd place, and one factor short of that at the next even place: in all
    2 T look-ups in 2 log2(T) passes.
    """
    T = x.shape[-1]
    if T == 1:
        return x
    even, odd, after = x[..., : T - 1 : 2], x[..., 1::2], x[..., 2::2]
    out = torch.empty_like(x)
    out[..., 0] = x[..., 0]
    out_odd = _prefixes(flat, G, _times(flat, G, even, odd))
    out[..., 1::2] = out_odd
    if T > 2:
        out[..., 2::2] = _times(flat, G, out_odd[..., : after.shape[-1]], after)
    return out


def _times(flat: Tensor, G: int, left: Tensor, right: Tensor) -> Tensor:
    # index_select is four times as quick on a CPU as indexing.
    found: Tensor = flat.index_select(0, right.add(left, alpha=G).flatten()).view(left.shape)
    return found


# Made once and, for torch.compile, constants; a graph is captured after a first call has made them.


@torch.compiler.assume_constant_result  # type: ignore[misc, untyped-decorator]
def table_on(group: str, device: torch.device) -> Tensor:
    """The Cayley table on a device, int64 `[G, G]`."""
    return _table(group, device)


@torch.compiler.assume_constant_result  # type: ignore[misc, untyped-decorator]
def blocks_on(group: str, K: int, device: torch.device) -> Tensor:
    """The products at each place of a block behind a given element, int64 `[G, V, K]`.

    Block v is the K elements that are its digits in base G, the first being the highest.
    """
    return _blocks(group, K, device)


@torch.compiler.assume_constant_result  # type: ignore[misc, untyped-decorator]
def swaps_on(group: str, device: torch.device) -> Tensor:
    """The swaps of a symmetric group, and its identity, on a device, int64 `[S]`."""
    return _swaps(group, device)


@cache
def _table(group: str, device: torch.device) -> Tensor:
    return torch.tensor(cayley_table(group), device=device)


@cache
def _swaps(group: str, device: torch.device) -> Tensor:
    return torch.tensor(swaps(group), device=device)


@cache
def _blocks(group: str, K: int, device: torch.device) -> Tensor:
    G = order(group)
    every = torch.cartesian_prod(*[torch.arange(G, device=device)] * (K + 1)).view(-1, K + 1)
    return _prefixes(_table(group, device).flatten(), G, every)[:, 1:].reshape(G, G**K, K)
