"""Small uniform integers, several from each random word.

A task draws all its words at once, since a call of the generator costs the same for few as for many:

    counts = words_for(20, 6), words_for(20, 3)
    dice, coins = rows.words(0, sum(counts)).split(counts, -1)
    digits(dice, 20, 6), digits(coins, 20, 3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_SHARED = 1 << 16
"""How many outcomes the integers made of one word may have together."""


def words_for(n: int, base: int) -> int:
    """How many words `digits` makes n integers in [0, base) of."""
    share = 1
    while base ** (share + 1) <= _SHARED:
        share += 1
    return -(-n // share)


def digits(words: Tensor, n: int, base: int) -> Tensor:
    """Uniform integers in [0, base), int64 `[..., n]`, of `words_for(n, base)` words; `base` at most 2^31.

    Each multiply and shift leaves below the point what the next integer of a word is made of, so they are
    together as uniform as one of the product of their bases would be: no outcome of theirs is off by more
    than a factor 1 ± max(2^16, base) / 2^32.
    """
    import torch

    from statelab.tasks.rows import below

    each = words.shape[-1]
    assert each == words_for(n, base)
    out = torch.empty((*words.shape[:-1], n), dtype=torch.int64, device=words.device)
    for start in range(0, n, max(1, each)):
        words = words[..., : n - start]
        out[..., start : start + each] = below(words, base)
        words = (words * base).bitwise_and_(0xFFFFFFFF)
    return out
