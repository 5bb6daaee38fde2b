"""Finite groups by name: their elements in published order and their Cayley tables.

Names: `S4` all permutations of 4 points, `A5` the even ones, `Z60` addition modulo 60, `D4` the symmetries of
a square, and direct products of these, `A4xZ5`. Orders of elements are those of the word-problem data
(Merrill, Petty and Sabharwal, "The illusion of state in state-space models", 2024, and their generator):
permutations in lexicographic order, 0, 1, 2 … for Z, pairs with the first factor as the slower one. D, which
they do not have, has its turns first and then each turn after a flip. Element 0 is always the identity.

A product a · b is "b, then a": (a · b)(i) = a(b(i)).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import permutations, product
from math import factorial, prod
from typing import Any, NamedTuple

MAX_ORDER = 1024
"""The largest group for which a table is made (S6 has 720 elements)."""

_LEAST = {"S": 2, "A": 3, "Z": 2, "D": 3}
_ORDER: dict[str, Callable[[int], int]] = {
    "S": factorial,
    "A": lambda n: factorial(n) // 2,
    "Z": lambda n: n,
    "D": lambda n: 2 * n,
}


class _Factor(NamedTuple):
    elements: list[Any]
    times: Callable[[Any, Any], Any]
    name: Callable[[Any], str]


def order(group: str) -> int:
    """G, the number of elements, found without listing them.

    Raises ValueError, saying what a name may be, for one that is not a group of at most MAX_ORDER elements.
    """
    sizes = [_ORDER[kind](n) if n <= MAX_ORDER else n for kind, n in _parse(group)]
    if prod(sizes) > MAX_ORDER:
        raise ValueError(f"group {group!r} is too large for a table; use one of at most {MAX_ORDER} elements")
    return prod(sizes)


@cache
def elements(group: str) -> tuple[str, ...]:
    """The names of the G elements: images of 1, 2, 3 … for permutations, factors joined by a comma."""
    factors = [[factor.name(element) for element in factor.elements] for factor in _factors(group)]
    return tuple(",".join(names) for names in product(*factors))


@cache
def swaps(group: str) -> tuple[int, ...]:
    """The elements of a symmetric group that move at most two points: the identity and the transpositions.

    Raises ValueError for any other group.
    """
    [*others, (kind, n)] = _parse(group)
    if others or kind != "S":
        raise ValueError(f"group {group!r} has no swaps; use generators='all' or a symmetric group, as 'S5'")
    moved = [sum(p[i] != i for i in range(n)) for p in permutations(range(n))]
    return tuple(i for i, count in enumerate(moved) if count <= 2)


@cache
def cayley_table(group: str) -> tuple[tuple[int, ...], ...]:
    """The products, G × G: row a, column b holds a · b."""
    first, *rest = [_factor_table(factor) for factor in _factors(group)]
    for table in rest:
        n = len(table)
        first = [[a * n + b for a in row for b in other] for row in first for other in table]
    return tuple(map(tuple, first))


def _parse(group: str) -> list[tuple[str, int]]:
    found = [re.fullmatch(r"([SAZD])([1-9]\d{0,8})", factor) for factor in group.split("x")]
    factors = [(match[1], int(match[2])) for match in found if match]
    if len(factors) < len(found) or any(n < _LEAST[kind] for kind, n in factors):
        raise ValueError(
            f"unknown group {group!r}; use S, A, Z or D and a number (S >= 2, A >= 3, Z >= 2, D >= 3), or "
            f"such names joined by x: S3, A5, Z60, D4, A4xZ5"
        )
    return factors


def _factors(group: str) -> list[_Factor]:
    order(group)
    return [_factor(kind, n) for kind, n in _parse(group)]


def _factor(kind: str, n: int) -> _Factor:
    if kind == "Z":
        return _Factor(list(range(n)), lambda a, b: (a + b) % n, str)
    if kind == "D":
        turns = list(product(range(2), range(n)))
        return _Factor(turns, lambda a, b: _dihedral(a, b, n), lambda a: f"{'rs'[a[0]]}{a[1]}")
    points = [p for p in permutations(range(n)) if kind == "S" or _is_even(p)]
    return _Factor(points, lambda a, b: tuple(a[i] for i in b), lambda p: "".join(f"{i + 1}" for i in p))


def _dihedral(a: tuple[int, int], b: tuple[int, int], n: int) -> tuple[int, int]:
    """(f, k) is i → k + i for f = 0 and i → k − i for f = 1, on n corners."""
    return a[0] ^ b[0], (a[1] + (-b[1] if a[0] else b[1])) % n


def _is_even(p: tuple[int, ...]) -> bool:
    return sum(p[i] > p[j] for j in range(len(p)) for i in range(j)) % 2 == 0


def _factor_table(factor: _Factor) -> list[list[int]]:
    place = {element: i for i, element in enumerate(factor.elements)}
    return [[place[factor.times(a, b)] for b in factor.elements] for a in factor.elements]
