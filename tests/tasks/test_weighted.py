"""Successive sampling: the exact law of the places drawn, and the table behind it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from statelab.tasks.rows import Rows
from statelab.tasks.weighted import exponential, successive_places
from tests.tasks.algebra import assert_same_law
from tests.tasks.statistics import assert_law, assert_mean

WORDS = Rows.span([5], "train", 0, 40_000)


def exact(n: int, k: int, power: float) -> dict[tuple[int, ...], float]:
    """The chance of each ordered choice, by multiplying what is left."""
    weights = [(j + 1) ** power for j in range(n)]
    law = {}
    for order in permutations(range(n), k):
        left, chance = sum(weights), 1.0
        for j in order:
            chance *= weights[j] / left
            left -= weights[j]
        law[order] = chance
    return law


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 3), (4, 2), (5, 3)])
@pytest.mark.parametrize("power", [-0.99, 0.0, 1.0, -2.0])
def test_ordered_choices_have_the_exact_law(n: int, k: int, power: float) -> None:
    law = exact(n, k, power)
    places = successive_places(WORDS.words(n, n), k, power)[0]
    rank = {order: i for i, order in enumerate(law)}
    found = torch.tensor([rank[tuple(order)] for order in places.tolist()])
    cells = list(law.values())
    common = [i for i, chance in enumerate(cells) if chance * len(found) > 10]
    rare = torch.tensor([common.index(i) if i in common else len(common) for i in range(len(cells))])
    rest = max(0.0, 1 - sum(cells[i] for i in common))
    assert rest * len(found) > 10 or rest < 1e-9
    assert_law(rare[found], [cells[i] for i in common] + ([rest] if rest > 1e-9 else []))


@pytest.mark.parametrize(("n", "k"), [(192, 64), (64, 64)])
def test_many_places_are_drawn_as_numpy_draws_them(n: int, k: int) -> None:
    """numpy's weighted choice without replacement is ordered successive sampling."""
    rows = 8_000
    chances = np.arange(1, n + 1) ** -0.99
    random = np.random.default_rng(0)
    drawn = np.stack([random.choice(n, k, replace=False, p=chances / chances.sum()) for _ in range(rows)])
    places = successive_places(Rows.span([9], "test", 0, rows).words(0, n), k, -0.99)[0].numpy()
    assert all(len(set(row)) == k for row in places.tolist())
    for i in (0, 1, k // 2, k - 1):
        assert_same_law(np.bincount(places[:, i], minlength=n), np.bincount(drawn[:, i], minlength=n))
    joint = [found[:, 0] // 8 * n + found[:, -1] for found in (places, drawn)]
    assert_same_law(*(np.bincount(cells, minlength=n * n) for cells in joint))


def test_a_longer_draw_starts_like_a_shorter_one() -> None:
    words = Rows.span([1, 2], "train", 0, 9).words(0, 100)
    longest = successive_places(words, 100, -0.99)
    for k in (1, 7, 99):
        assert torch.equal(successive_places(words, k, -0.99), longest[..., :k])


def test_exponential_numbers_are_logarithms() -> None:
    edges = torch.tensor([0, 1, 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1])
    words = torch.cat([edges.view(1, 1, -1), Rows.span([5], "train", 0, 1).words(3, 100_000)], -1)
    found = exponential(words).double() / 2**40
    exact = -torch.log((words.double() + 0.5) / 2**32)
    assert (found > 0).all()
    # Half a cell's width squared over 2, and half a unit.
    assert (found - exact).abs().max() < 2**-21
    assert_mean(found[..., 8:], 1.0)
    assert torch.equal(exponential(words.sort().values), exponential(words).sort(descending=True).values)
