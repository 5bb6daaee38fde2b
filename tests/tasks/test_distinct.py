"""Distinct numbers: all ordered choices are equally likely, sparse or dense."""

from __future__ import annotations

import math

import pytest
import torch

from statelab.tasks.distinct import candidates, distinct, first_distinct, words_for
from statelab.tasks.motifs import motif_ids, motifs
from statelab.tasks.rows import Rows
from tests.tasks.statistics import assert_law, assert_uniform
from tests.tasks.test_rows import rank


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 2), (3, 3), (3, 6), (2, 60)])
def test_ordered_choices_are_uniform(k: int, n: int) -> None:
    words = Rows.span([3], "train", 0, 40_000).words(0, words_for(k, n))
    assert_uniform(rank(distinct(words, k, n), n), math.perm(n, k))


@pytest.mark.parametrize(("k", "n"), [(2, 200), (64, 4095), (100, 120), (256, 4095), (900, 1000)])
def test_numbers_differ_and_each_is_as_likely(k: int, n: int) -> None:
    found = distinct(Rows.span([1, 2], "train", 0, 2000).words(0, words_for(k, n)), k, n)
    assert found.shape == (2, 2000, k)
    assert found.min() >= 0
    assert found.max() < n
    assert (found.sort(-1).values.diff(dim=-1) > 0).all()
    cells = min(n, 50)
    law = (torch.arange(n) * cells // n).bincount().double() / n
    for place in (0, -1):
        assert_law(found[..., place] * cells // n, law.tolist())


def test_both_ways_are_taken() -> None:
    assert words_for(3, 6) == candidates(3, 6) == 6
    assert 2 < words_for(2, 60) < 60
    assert words_for(64, 4095) < 100
    assert candidates(4, 2**100) < 8


def test_first_distinct() -> None:
    numbers = torch.tensor([[[5, 5, 0, 5, 9, 0, 2, 7]], [[1, 2, 3, 4, 4, 3, 2, 1]]])
    assert first_distinct(numbers, 4).tolist() == [[[5, 0, 9, 2]], [[1, 2, 3, 4]]]


@pytest.mark.parametrize(("size", "alphabet"), [(1, 5), (2, 2), (3, 4), (4, 4)])
def test_motifs_are_uniform_among_words_of_distinct_tokens(size: int, alphabet: int) -> None:
    words = Rows.span([3], "train", 0, 20_000).words(0, 2 * size).unflatten(-1, (2, size))
    found = motifs(words, alphabet)
    for i in range(2):
        assert_uniform(rank(found[:, :, i], alphabet), math.perm(alphabet, size))


def test_motifs_have_a_number_each() -> None:
    tokens = torch.tensor([[0, 1, 2], [0, 2, 1], [0, 1, 2], [0, 3, 2], [1, 0, 0], [0, 1, 3]])
    size = torch.tensor([3, 3, 2, 1, 1, 2])
    first, other, two, one, another, same = motif_ids(tokens, size, 4).tolist()
    assert two == same
    assert len({first, other, two, one, another}) == 5
    assert all(0 <= number < 5**3 for number in (first, other, two, one, another))
