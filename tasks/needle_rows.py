"""Needle tasks drawn and laid out.

Legend: R lanes, B rows, n needles put into the haystack, d needles it is made of, F tokens of the haystack, k
tokens of a key, v of a value, q queried keys, A tokens of the answers, L tokens of a row with its last.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.distinct import candidates, choose, first_distinct
from statelab.tasks.needle_shape import ANSWER, DEPTHS, END, IS, NEEDLE, QUERY, START, Shape, Words
from statelab.tasks.rows import Rows, below

_KEYS, _VALUES, _OTHER_VALUES, _PLACES, _ORDER, _QUERIED, _FILLER = range(7)
_FEW = 1 << 20


class Needles(NamedTuple):
    """What a row is made of, int64.

    `hay` `[R, B, F]` are the haystack's tokens, and `before` `[R, B, n]` says, never falling, how many of them
    stand before each needle in the order of the text. The needles themselves are given key by key and, for one
    key, in the order of the text: `order` `[R, B, n]` is where in that order each stands, `keys` `[R, B, keys,
    k]` and `values` `[R, B, n, v]` are their tokens. `queried` `[R, B, q]` numbers the keys that are asked for.
    """

    hay: Tensor
    before: Tensor
    order: Tensor
    keys: Tensor
    values: Tensor
    queried: Tensor


def draw(rows: Rows, shape: Shape, length: int, kinds: dict[str, range], different: bool) -> Needles:
    """Needles drawn as `Needle.sample` says, their words different or not."""
    d, n = shape.distractors(length), shape.needles
    keys = draw_words(rows, _KEYS, shape.keys + d, shape.key, different) + kinds["key"].start
    values = draw_words(rows, _VALUES, n, shape.value, different) + kinds["value"].start
    chosen = choose(rows, _PLACES, n, shape.places(length)).sort(-1).values
    order = rows.permutation(_ORDER, n).unflatten(-1, (shape.keys, shape.values)).sort(-1).values
    F, filler = shape.hay(length), kinds["filler"]
    if shape.haystack == "block":
        block = torch.arange(F, device=rows.device) % shape.block + filler.start
        hay, before = block.expand(rows.lanes, rows.count, F), chosen * shape.block
    elif shape.haystack == "essay":
        hay, before = rows.integers(_FILLER, F, len(filler)) + filler.start, F * depths(chosen) // 100
    else:
        left = F - d * shape.needle
        spare = rows.integers(_FILLER, left, len(filler)) + filler.start
        others = draw_words(rows, _OTHER_VALUES, d, shape.value, False) + kinds["value"].start
        hay = torch.cat([spare, _written(keys[:, :, shape.keys :], others).flatten(-2)], -1)
        before = left + chosen * shape.needle
    return Needles(
        hay=hay,
        before=before,
        order=order.flatten(-2),
        keys=keys[:, :, : shape.keys],
        values=values,
        queried=choose(rows, _QUERIED, shape.queries, shape.keys),
    )


def draw_words(rows: Rows, draw: int, k: int, words: Words, different: bool) -> Tensor:
    """k uniform words, `[R, B, k, tokens]`, no two the same if they must be `different`.

    Then, where there are more than 2^20 words, they differ within their first 62 bits.
    """
    if different and words.number <= _FEW:
        numbers = choose(rows, draw, k, words.number)
        return _digits(numbers + words.first * words.base ** (words.tokens - 1), words.tokens, words.base)
    m = candidates(k, words.number) if different else k
    random = rows.words(draw, m * words.tokens).unflatten(-1, (m, words.tokens))
    tokens = below(random, words.base)
    if words.first:
        tokens[..., 0] = below(random[..., 0], words.base - words.first) + words.first
    if not different:
        return tokens
    head = max(t for t in range(1, words.tokens + 1) if t == 1 or words.base**t <= 1 << 62)
    number = tokens[..., 0]
    for t in range(1, head):
        number = number * words.base + tokens[..., t]
    return torch.cat([_digits(first_distinct(number, k), head, words.base), tokens[:, :, :k, head:]], -1)


def _digits(numbers: Tensor, count: int, base: int) -> Tensor:
    """So many digits of each number, the highest first, `[…, count]`."""
    return torch.stack([numbers // base**i % base for i in reversed(range(count))], -1)


def depths(chosen: Tensor) -> Tensor:
    """Percent, rounded, of the i-th of 40 evenly spaced depths; none lies halfway between two percents."""
    steps = DEPTHS - 1
    return (200 * chosen + steps) // (2 * steps)


def _written(keys: Tensor, values: Tensor) -> Tensor:
    """Needles of these keys and values, `[R, B, n, needle]`."""
    needle, is_, end = (keys.new_full((*keys.shape[:-1], 1), mark) for mark in (NEEDLE, IS, END))
    return torch.cat([needle, keys, is_, values, end], -1)


def lay_out(shape: Shape, needles: Needles, everywhere: bool) -> Batch:
    """The rows made of these needles, with a loss at every token or on the answers alone."""
    values = needles.values.unflatten(2, (shape.keys, shape.values))
    start = _start(shape, needles)
    asked = _pick(needles.keys, needles.queried).flatten(-2)
    answers = _pick(values.flatten(-2), needles.queried).flatten(-2)
    asked_start = _pick(start.unflatten(-1, (shape.keys, shape.values)), needles.queried).flatten(-2)
    query, answer = (asked.new_full((*asked.shape[:-1], 1), mark) for mark in (QUERY, ANSWER))
    row = torch.cat([_text(shape, needles, start), query, asked, answer, answers], -1)

    A, v = shape.answers, shape.value.tokens
    targets, distance, group = row.new_full((3, *row.shape[:-1], row.shape[-1] - 1), IGNORE)
    number = torch.arange(A // v, device=row.device)
    ago = row.shape[-1] - A + number * v - (asked_start + shape.key.tokens + 2)
    targets[..., -A:] = answers
    distance[..., -A:] = ago.repeat_interleave(v, -1)
    group[..., -A:] = number.repeat_interleave(v)
    return Batch(
        inputs=row[..., :-1].contiguous(),
        targets=targets,
        loss_targets=row[..., 1:].contiguous() if everywhere else targets,
        length=torch.full_like(row[..., 0], row.shape[-1] - 1),
        distance=distance,
        group=group,
    )


def _start(shape: Shape, needles: Needles) -> Tensor:
    """Where in the row each needle starts, key by key, `[R, B, n]`."""
    before = torch.arange(shape.needles, device=needles.hay.device)
    return (1 + needles.before + before * shape.needle).gather(-1, needles.order)


def _text(shape: Shape, needles: Needles, start: Tensor) -> Tensor:
    """The start and the haystack with the needles in it, `[R, B, 1 + F + n · needle]`."""
    *head, F = needles.hay.shape
    passed = start.new_zeros((*head, F + 1)).scatter_add_(-1, needles.before, torch.ones_like(start))
    at = passed[..., :-1].cumsum(-1).mul_(shape.needle).add_(torch.arange(1, F + 1, device=start.device))
    keys = needles.keys[:, :, :, None].expand(-1, -1, -1, shape.values, -1).flatten(2, 3)
    within = torch.arange(shape.needle, device=start.device)
    text = start.new_full((*head, 1 + F + shape.needles * shape.needle), START)
    text.scatter_(-1, at, needles.hay)
    return text.scatter_(
        -1, (start[..., None] + within).flatten(-2), _written(keys, needles.values).flatten(-2)
    )


def _pick(of_key: Tensor, queried: Tensor) -> Tensor:
    """Of `[R, B, keys, …]` what belongs to the queried keys, `[R, B, q, …]`."""
    return of_key.gather(2, queried[..., None].expand(-1, -1, -1, of_key.shape[-1]))
