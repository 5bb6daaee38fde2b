"""Distinct numbers made of uniform words, in the order drawn.

Legend: R lanes, B rows, m numbers, k distinct ones among them.
"""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from statelab.tasks.rows import Rows


def distinct(words: Tensor, k: int, n: int) -> Tensor:
    """k distinct numbers of 0 … n − 1, every ordered choice equally likely, int64 `[R, B, k]`.

    `words` are uniform integers in [0, 2^32), `words_for(k, n)` of them a row; k lies in 1 … n and n is at most
    2^20, unchecked. Where n is close to k they are the first k places in the order of n words, of which two
    tie, and then keep their order, with probability below n² / 2^33.
    """
    if words.shape[-1] < n:
        return first_distinct((words * n).bitwise_right_shift_(32), k)
    place_bits = (n - 1).bit_length()
    ranked = (words << place_bits).bitwise_or_(torch.arange(n, device=words.device))
    first: Tensor = ranked.topk(k, largest=False).values
    return first.bitwise_and_((1 << place_bits) - 1)


def choose(rows: Rows, draw: int, k: int, n: int) -> Tensor:
    """`distinct` with words of this draw."""
    return distinct(rows.words(draw, words_for(k, n)), k, n)


def words_for(k: int, n: int) -> int:
    """How many words a row `distinct` makes k numbers below n of."""
    return min(n, candidates(k, n))


def first_distinct(numbers_RBm: Tensor, k: int) -> Tensor:
    """The first k different numbers of each row, in order, `[R, B, k]`; each row has so many, unchecked."""
    ordered = numbers_RBm.sort(dim=-1, stable=True)
    new_RBm = torch.ones_like(numbers_RBm)
    repeats = ordered.values[..., 1:] == ordered.values[..., :-1]
    new_RBm.scatter_(-1, ordered.indices[..., 1:], (~repeats).long())
    # Repeats, and what comes after the first k, go to a place that is cut off.
    place_RBm = torch.where(new_RBm == 1, new_RBm.cumsum(-1) - 1, k).clamp_(max=k)
    out = numbers_RBm.new_zeros((*numbers_RBm.shape[:-1], k + 1))
    return out.scatter_(-1, place_RBm, numbers_RBm)[..., :k]


def candidates(k: int, n: int) -> int:
    """The smallest m up to n such that fewer than k of m numbers below n differ with chance below 2^-64.

    While fewer than k are found a candidate repeats one with probability at most q = (k − 1) / n, so repeats
    are at most binomial; Chernoff bounds m − k + 1 of them by exp(-m KL(a || q)) with a = (m − k + 1) / m.
    """
    q = (k - 1) / n
    m = k
    while m < n:
        a = (m - k + 1) / m
        if a > q and m * _divergence(a, q) >= 64 * log(2):
            break
        m += 1
    return m


def _divergence(a: float, q: float) -> float:
    """Kullback–Leibler divergence of coins with chances a > q, in nats."""
    if q <= 0:
        return inf
    return a * log(a / q) + ((1 - a) * log((1 - a) / (1 - q)) if a < 1 else 0.0)
