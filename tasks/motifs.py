"""Motifs: words of a few distinct tokens of an alphabet.

Legend: … leading axes, m the longest motif.
"""

from __future__ import annotations

import torch
from torch import Tensor


def motifs(words: Tensor, alphabet: int) -> Tensor:
    """m distinct tokens below `alphabet`, every ordered choice equally likely, int64 `[…, m]`.

    `words` are uniform integers in [0, 2^32), `[…, m]`; m is at most `alphabet`, unchecked. Token i is drawn
    as its rank among those that the i before it left (a Lehmer code), of which reading backwards makes tokens.
    """
    ranks: list[Tensor] = []
    for i, word in enumerate(words.unbind(-1)):
        ranks.append((word * (alphabet - i)).bitwise_right_shift_(32))
    tokens = []
    for i, rank in enumerate(ranks):
        token = rank
        for earlier in reversed(ranks[:i]):
            token = token + (token >= earlier)
        tokens.append(token)
    return torch.stack(tokens, -1)


def motif_ids(tokens: Tensor, size: Tensor, alphabet: int) -> Tensor:
    """A number for each motif made of the first `size` `[…]` of these `tokens` `[…, m]`, int64 `[…]`.

    Two motifs have the same number if they are the same; numbers lie in 0 … (alphabet + 1)^m − 1, which must
    not pass 2^62, unchecked.
    """
    ids = torch.zeros_like(size)
    for i, token in enumerate(tokens.unbind(-1)):
        ids = ids * (alphabet + 1) + (token + 1) * (i < size)
    return ids
