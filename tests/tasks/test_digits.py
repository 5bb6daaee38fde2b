"""Integers made several of a word: how many words, uniform and independent, exact at both ends."""

from __future__ import annotations

import pytest
import torch

from statelab.tasks.digits import digits, words_for
from statelab.tasks.rows import Rows
from tests.tasks.statistics import assert_uniform


@pytest.mark.parametrize(
    ("n", "base", "words"),
    [
        (0, 5, 0),
        (1, 5, 1),
        (6, 6, 1),
        (7, 6, 2),
        (16, 2, 1),
        (17, 2, 2),
        (9, 256, 5),
        (9, 257, 9),
        (3, 2**31, 3),
    ],
)
def test_words_for(n: int, base: int, words: int) -> None:
    assert words_for(n, base) == words
    assert digits(torch.zeros(2, words, dtype=torch.int64), n, base).tolist() == [[0] * n] * 2
    greatest = torch.full((2, words), 2**32 - 1)
    assert digits(greatest, n, base).tolist() == [[base - 1] * n] * 2


def test_a_word_is_written_in_the_base() -> None:
    word = torch.tensor([[(3 * 36 + 0 * 6 + 5) * 2**32 // 216 + 1]])
    assert digits(word.expand(1, 1), 3, 6).tolist() == [[3, 0, 5]]


@pytest.mark.parametrize("base", [2, 3, 6, 60])
def test_digits_are_uniform_and_independent(base: int) -> None:
    n = 8
    words = Rows.span([7], "test", 0, 60_000).words(0, words_for(n, base))
    found = digits(words, n, base)
    assert_uniform(found, base)
    # Neighbours of one word lie words_for places apart.
    for i, j in ((0, 1), (0, words_for(n, base) % n), (n - 2, n - 1)):
        if i != j:
            assert_uniform(found[..., i] * base + found[..., j], base * base)
