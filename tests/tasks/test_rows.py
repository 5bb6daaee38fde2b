"""Rows: which numbers belong to which row, and that they have the laws they claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.tasks.distinct import candidates
from statelab.tasks.philox import philox
from statelab.tasks.rows import Rows
from tests.tasks.statistics import assert_law, assert_uniform

DRAWS: dict[str, Callable[[Rows, int], Tensor]] = {
    "words": lambda rows, n: rows.words(1, n),
    "integers": lambda rows, n: rows.integers(2, n, 10),
    "bits": lambda rows, n: rows.bits(3, n),
    "flags": lambda rows, n: rows.flags(4, n, 0.3),
    "choice": lambda rows, n: rows.choice(5, n, 4095),
}
each_draw = pytest.mark.parametrize("name", DRAWS)


def many(count: int = 20_000) -> Rows:
    return Rows.span([11], "train", 0, count)


def test_key_and_counter_are_as_documented() -> None:
    row, draw = 5 * 2**32 + 7, 9
    rows = Rows(torch.tensor([3]), "test", torch.tensor([row]))
    low, high, block, source = torch.tensor([7, 5, 2, draw])
    expected = philox((low, high, block, source), torch.tensor([[3, 2]])).flatten()
    assert torch.equal(rows.words(draw, 12)[0, 0, 8:], expected)


@each_draw
def test_a_longer_draw_starts_like_a_shorter_one(name: str) -> None:
    rows = Rows.span([1, 2], "train", 3, 5)
    longest = DRAWS[name](rows, 150)
    for n in (1, 4, 31, 32, 33, 149):
        assert torch.equal(DRAWS[name](rows, n), longest[..., :n])


@each_draw
def test_draws_split_seed_and_row_matter(name: str) -> None:
    draw = DRAWS[name]
    others = [
        Rows.span([1], "validation", 0, 1),
        Rows.span([1], "test", 0, 1),
        Rows.span([2], "train", 0, 1),
        Rows.span([1], "train", 1, 1),
        Rows.span([1], "train", 2**32, 1),
    ]
    base = draw(Rows.span([1], "train", 0, 1), 64)
    assert base.shape == (1, 1, 64)
    assert not any(torch.equal(base, draw(other, 64)) for other in others)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_span(device: str | None) -> None:
    rows = Rows.span(torch.tensor([4, 4]), "train", 6, 3, device)
    assert (rows.lanes, rows.count, rows.device.type) == (2, 3, "cpu")
    assert rows.index.tolist() == [6, 7, 8]


def test_integers_with_a_bound_for_each() -> None:
    rows, high = Rows.span([1, 2], "train", 0, 50), torch.tensor([1, 2, 7, 2**31])
    found = rows.integers(0, 4, high)
    for j, bound in enumerate(high.tolist()):
        assert torch.equal(found[..., j], rows.integers(0, 4, bound)[..., j])
    assert (found < high).all()
    assert not found[..., 0].any()


def test_integers_are_uniform() -> None:
    found = many().integers(0, 2, 13)
    assert_uniform(found, 13)
    assert_uniform(found[..., 0] * 13 + found[..., 1], 169)


def test_bits_are_fair_and_independent() -> None:
    bits = many().bits(0, 40)
    assert set(bits.unique().tolist()) == {0, 1}
    for j in range(0, 40, 8):
        assert_uniform(bits[..., j : j + 8] @ (2 ** torch.arange(8)), 256)
    assert_uniform(bits[..., 30] + 2 * bits[..., 33], 4)


@pytest.mark.parametrize("probability", [0.0, 0.03, 0.8, 1.0])
def test_flags_have_their_probability(probability: float) -> None:
    assert_law(many().flags(0, 3, probability).long(), [1 - probability, probability])


def test_permutations_are_uniform() -> None:
    orders = many().permutation(0, 4)
    assert_uniform(rank(orders), 24)


def rank(orders_RBk: Tensor, n: int = 4) -> Tensor:
    """A number for each ordered choice, in [0, n! / (n − k)!), by its Lehmer code."""
    found = torch.zeros_like(orders_RBk[..., 0])
    for i in range(orders_RBk.shape[-1]):
        smaller_before = (orders_RBk[..., :i] < orders_RBk[..., i : i + 1]).sum(-1)
        found = found * (n - i) + orders_RBk[..., i] - smaller_before
    return found


@pytest.mark.parametrize("n", [1, 2, 63, 1000])
def test_permutations_hold_every_number_once(n: int) -> None:
    orders = Rows.span([1, 2], "train", 0, 9).permutation(0, n)
    assert torch.equal(orders.sort(-1).values, torch.arange(n).expand(2, 9, n))


@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 3), (2, 200), (64, 4095), (100, 120), (256, 4095)])
def test_choices_are_distinct_and_each_number_as_likely(k: int, n: int) -> None:
    found = Rows.span([1, 2], "train", 0, 4000).choice(0, k, n)
    assert found.shape == (2, 4000, k)
    assert found.min() >= 0
    assert found.max() < n
    assert (found.sort(-1).values.diff(dim=-1) > 0).all()
    cells = min(n, 50)
    law = (torch.arange(n) * cells // n).bincount().double() / n
    for place in (0, -1):
        assert_law(found[..., place] * cells // n, law.tolist())


@pytest.mark.parametrize(("k", "n"), [(3, 6), (2, 60)])
def test_ordered_choices_are_uniform(k: int, n: int) -> None:
    assert_uniform(rank(many(40_000).choice(0, k, n), n), math.perm(n, k))


def test_both_ways_to_choose_are_taken() -> None:
    assert candidates(3, 6) == 6
    assert 2 < candidates(2, 60) < 60
    assert candidates(64, 4095) < 100


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Rows.span([], "train", 0, 1),
            "seeds must be a one-dimensional int64 tensor with at least one",
        ),
        (lambda: Rows.span([2**32], "train", 0, 1), r"seeds must be in 0 … 2\^32 - 1, got 4294967296"),
        (lambda: Rows.span([-1], "train", 0, 1), "seeds must be in .* got -1"),
        (lambda: Rows.span(torch.tensor([1.0]), "train", 0, 1), "got torch.float32 of shape"),
        (lambda: Rows.span([1], "train", -3, 1), "start -3 and count 1 given; use start >= 0"),
        (lambda: Rows.span([1], "train", 0, 0), "count 0 given"),
        (lambda: Rows(torch.tensor([1]), "train", torch.tensor([-4])), "index must be 0 or more, got -4"),
        (lambda: Rows(torch.tensor([1]), "train", torch.tensor([[4]])), r"of shape \[1, 1\]"),
        (lambda: Rows.span([1], "dev", 0, 1), "unknown split 'dev'; known: train, validation, test"),  # type: ignore[arg-type]
        (lambda: many(1).integers(0, 1, 0), "high is 0; it must lie in 1"),
        (lambda: many(1).flags(0, 1, 1.5), r"probability is 1.5; it must lie in \[0, 1\]"),
        (lambda: many(1).permutation(0, 0), "n is 0; it must lie in 1"),
        (lambda: many(1).choice(0, 5, 4), "5 of 4 asked; use 1 <= k <= n"),
    ],
)
def test_errors_are_sentences(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
