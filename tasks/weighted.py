"""Successive sampling: places drawn one after another, each with its weight among those that are left.

Place j of weight w_j gets the time E_j / w_j with E_j exponential, and the places come in the order of their
times: the first is j with probability w_j / Σ w, and so on among the rest (Efraimidis and Spirakis, "Weighted
random sampling with a reservoir", 2006, algorithm A). The logarithm comes from a table made once on the CPU
and read by integers, and a time is one IEEE product, so that every device finds the same order.

Legend: R lanes, B rows, n places, k of them.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

_CELL_BITS = 9
_LOW_BITS = 31
_MANTISSA, _BIAS = 52, 1023
_ONE = 1 << 40
"""An exponential number of 1, in fixed point."""

_tables: dict[tuple[object, ...], Tensor] = {}
"""Kept here rather than by functools.cache, through which torch.compile does not look: it would trace the
making of a table."""


def successive_places(words: Tensor, k: int, power: float) -> Tensor:
    """The first k places, in the order drawn, if place j has the weight (j + 1) ^ power; int64 `[R, B, k]`.

    `words` are uniform integers in [0, 2^32), one for each of the n places, int64 `[R, B, n]`; k lies in
    1 … n, unchecked. Two times that agree in their leading 52 − log2(n) bits keep the order of their places;
    no probability is off by more than about 1e-6 of itself.
    """
    n = words.shape[-1]
    place_bits = (n - 1).bit_length()
    times = exponential(words).double().mul_(_slowness(n, power, words.device))
    # Positive floats are ordered as their bits are, the lowest of which make room for the place.
    ranked = times.view(torch.int64).bitwise_and_(-1 << place_bits)
    ranked |= torch.arange(n, device=words.device)
    first: Tensor = ranked.topk(k, largest=False).values
    return first.bitwise_and_((1 << place_bits) - 1)


def exponential(words: Tensor) -> Tensor:
    """Exponential numbers of mean 1 in units of 2^-40, int64 above 0, made of uniform words of 32 bits.

    They are −ln u with u = (word + 1/2) / 2^32, by a table over the exponent and the first 9 bits of u as a
    float, linear between its nodes.
    """
    start, size = _logarithms(words.device).unbind()
    u = (words * 2).add_(1).double().view(torch.int64)
    cell = (u >> _MANTISSA - _CELL_BITS).sub_(_BIAS << _CELL_BITS).flatten()
    low = (u >> _MANTISSA - _CELL_BITS - _LOW_BITS).bitwise_and_((1 << _LOW_BITS) - 1)
    down = size.index_select(0, cell).view_as(low).mul_(low).bitwise_right_shift_(_LOW_BITS)
    return start.index_select(0, cell).view_as(low).sub_(down)


def _logarithms(device: torch.device) -> Tensor:
    """−ln u where each cell starts and how much less it is at its end, int64 `[2, 33 · 2^9]`."""
    key = ("logarithms", device)
    if key not in _tables:
        octaves, cells = range(33, 0, -1), range(1 << _CELL_BITS)
        nodes = [octave * log(2) - log(1 + cell / len(cells)) for octave in octaves for cell in cells]
        fixed = torch.tensor([round(node * _ONE) for node in [*nodes, 0.0]], device="cpu")
        _tables[key] = torch.stack([fixed[:-1], -fixed.diff()]).to(device)
    return _tables[key]


def _slowness(n: int, power: float, device: torch.device) -> Tensor:
    """What a time is multiplied by, one over the weight of each place, float64 `[n]`."""
    key = ("slowness", n, power, device)
    if key not in _tables:
        weights = [float(j + 1) ** -power for j in range(n)]
        _tables[key] = torch.tensor(weights, dtype=torch.float64, device="cpu").to(device)
    return _tables[key]
