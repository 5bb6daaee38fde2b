"""How pairs of several tokens become rows: first which pair stands where, then the tokens.

Legend: R lanes, B rows, N pairs with the probe first, K and V tokens of the longest key and value, Q = N + 1
places in a row's line of pairs, S tokens of a row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from statelab.tasks.motifs import motif_ids


class Pairs(NamedTuple):
    """Pairs of a key and a value: the probe, then the others as drawn.

    `keys` `[R, B, N, K]` and `values` `[R, B, N, V]` are tokens, of which the first `key_size` and `value_size`
    count; all else is `[R, B, N]`. `key` is a number for each key, of noise its own below 0; `first` is the
    pair whose value a pair has; `size` is the number of tokens of a pair.
    """

    keys: Tensor
    values: Tensor
    key: Tensor
    key_size: Tensor
    first: Tensor
    size: Tensor


class Line(NamedTuple):
    """Which pair stands where, `[R, B, Q]`, and how long the row is.

    `pair` is the pair at each place and `start` its first token's place in the row before padding. `ago` is how
    many tokens ago the same key stood, for the last one, if it never did, where the row begins, and 0 where
    nothing is asked. `live` are the places that the row has; `length` `[R, B, 1]` counts its tokens.
    """

    pair: Tensor
    start: Tensor
    ago: Tensor
    live: Tensor
    length: Tensor


class Row(NamedTuple):
    """A row's tokens `[R, B, S]`, where they are noise, and for each scored one `ago` and its answer's number.

    `ago` is 0 where nothing is scored; `length` `[R, B]` counts the tokens before the last and behind padding.
    """

    token: Tensor
    noisy: Tensor
    ago: Tensor
    group: Tensor
    length: Tensor


def pairs_of(
    keys: Tensor, values: Tensor, key_size: Tensor, value_size: Tensor, noisy: Tensor, alphabet: int
) -> Pairs:
    """Pairs of these keys, of tokens below `alphabet`; those that are noise, bool `[R, B, N]`, have none."""
    number = torch.arange(keys.shape[2], device=keys.device)
    key = torch.where(noisy, -1 - number, motif_ids(keys, key_size, alphabet))
    first = _first_same(key)
    return Pairs(keys, values, key, key_size, first, key_size + value_size.gather(-1, first))


def _first_same(key: Tensor) -> Tensor:
    """The first place with the same key, `[R, B, N]`."""
    ordered = key.sort(dim=-1, stable=True)
    place = torch.arange(key.shape[-1], device=key.device).expand_as(key)
    new = torch.ones_like(key, dtype=torch.bool)
    new[..., 1:] = ordered.values.diff(dim=-1) != 0
    head = place.where(new, 0).cummax(-1).values
    return torch.empty_like(key).scatter_(-1, ordered.indices, ordered.indices.gather(-1, head))


def place(pairs: Pairs, at: Tensor, limit: Tensor, always: bool, only_last: bool) -> Line:
    """Line the pairs up while they start below `limit`, and ask for the probe behind.

    The probe stands at the first boundary at or behind `at`, unless its key came by itself. If there is none
    below the limit it stands, with `always`, at the last one, or nowhere. With `only_last` the end alone asks,
    a copy token before it. `at` and `limit` are int64 `[R, B, 1]`.
    """
    size = pairs.size[..., 1:]
    start = size.cumsum(-1) - size
    below_at, below_limit = ((start < bound).sum(-1, keepdim=True) for bound in (at, limit))
    where = torch.minimum(below_at, below_limit - 1) if always else below_at
    number = torch.arange(pairs.size.shape[-1] + 1, device=at.device)
    came = ((pairs.key[..., 1:] == pairs.key[..., :1]) & (number[:-2] < where)).any(-1, keepdim=True)
    put = ~came & (where < below_limit)
    # Place by place: the others in their order, from 1 on, and the probe, 0, where it is put and at the end.
    pair = (number + 1 - (put & (number > where)).long()).clamp_(max=pairs.size.shape[-1] - 1)
    pair.masked_fill_(put & (number == where), 0)
    size = pairs.size.gather(-1, pair)
    start = size.cumsum(-1) - size
    end = (start < limit).sum(-1, keepdim=True)
    at_end, live = number == end, number <= end
    pair.masked_fill_(at_end, 0)
    start += at_end & only_last
    key = pairs.key.gather(-1, pair).masked_fill_(~live, -1)
    ago = _since_same(key, start)
    ago = torch.where(at_end & (ago == 0), start, ago)
    if only_last:
        ago.masked_fill_(~at_end, 0)
    length = (start + pairs.size[..., :1]).where(at_end, 0).sum(-1, keepdim=True)
    return Line(pair, start, ago, live, length)


def _since_same(key: Tensor, start: Tensor) -> Tensor:
    """How many tokens ago the same key stood, `[R, B, Q]`; 0 if never or if the key is negative."""
    ordered = key.sort(dim=-1, stable=True)
    same = (ordered.values[..., 1:] == ordered.values[..., :-1]) & (ordered.values[..., 1:] >= 0)
    gap = start.gather(-1, ordered.indices).diff(dim=-1).mul_(same)
    return torch.zeros_like(key).scatter_(-1, ordered.indices[..., 1:], gap)


def render(pairs: Pairs, line: Line, tokens: int, pad: int, copy: int | None) -> Row:
    """Rows of so many tokens, padded in front, with `copy` before the last key; noise has no tokens yet."""
    padding = tokens - line.length
    start = (line.start + padding).where(line.live, tokens)
    # The place of the line that each token belongs to: padding to none, a copy token to the one before it.
    marks = start.new_zeros((*start.shape[:-1], tokens + 1)).scatter_(-1, start, 1)
    q = marks[..., :-1].cumsum(-1).sub_(1)
    padded = q < 0
    q.clamp_(min=0)
    where = torch.arange(tokens, device=start.device)
    pair, offset = line.pair.gather(-1, q), where - start.gather(-1, q)
    over = offset - pairs.key_size.gather(-1, pair)
    token = torch.where(
        over < 0,
        _of_pair(pairs.keys, pair, offset),
        _of_pair(pairs.values, pairs.first.gather(-1, pair), over),
    ).masked_fill_(padded, pad)
    if copy is not None:
        token.masked_fill_(where == tokens - 1 - pairs.size[..., :1], copy)
    return Row(
        token=token,
        noisy=(pairs.key.gather(-1, pair) < 0) & ~padded,
        ago=line.ago.gather(-1, q).masked_fill_(padded | (over < 0), 0),
        group=(line.ago > 0).cumsum(-1).sub_(1).gather(-1, q),
        length=line.length[..., 0] - 1,
    )


def _of_pair(tokens_RBNk: Tensor, pair_RBS: Tensor, offset_RBS: Tensor) -> Tensor:
    """The token at an offset of a pair's key or value; beyond its ends, any."""
    k = tokens_RBNk.shape[-1]
    return tokens_RBNk.flatten(-2).gather(-1, pair_RBS * k + offset_RBS.clamp(0, k - 1))
