"""Even pairs: worked rows, the law of sizes and bits, refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE
from statelab.tasks.even_pairs import EvenPairs, lay_out
from statelab.tasks.rows import Rows
from tests.tasks import algebra
from tests.tasks.cases import legal
from tests.tasks.statistics import assert_uniform

ROWS = Rows.span([5], "validation", 0, 8_000)


@pytest.mark.parametrize(
    ("bits", "answer"),
    [([0, 0, 1, 1, 1, 0], 0), ([0, 1, 0, 1, 0, 0, 1], 1), ([1, 0, 0, 1], 0), ([1, 0], 1)],
    ids=str,
)
def test_worked_rows(bits: list[int], answer: int) -> None:
    """The first two are those of the Chomsky-hierarchy code: one 10 and one 01, two 10 and three 01."""
    T, size = 9, len(bits)
    # What lies behind the size was drawn and is not shown.
    batch = lay_out(torch.tensor([[bits + [1] * (T - size)]]), torch.tensor([[size]]))
    assert batch.inputs[0, 0].tolist() == [bit + 1 for bit in bits] + [0] * (T - size)
    assert batch.targets[0, 0].tolist() == [1 + answer if t == size - 1 else IGNORE for t in range(T)]
    assert batch.length.tolist() == [[size]]


def test_sizes_are_uniform_and_answers_even() -> None:
    batch = EvenPairs(min_length=2).sample(ROWS, 12)
    answers = batch.targets[batch.targets != IGNORE]
    assert answers.shape == (8_000,)
    assert_uniform((batch.length[0] - 2) * 2 + answers - 1, 22)


def test_bits_are_fair_and_independent() -> None:
    batch = EvenPairs().sample(ROWS, 9)
    assert (batch.length == 9).all()
    assert_uniform((batch.inputs - 1) @ (2 ** torch.arange(9)), 512)


@settings(deadline=None, max_examples=60)
@given(min_length=st.none() | st.integers(2, 40), length=st.integers(0, 70), start=st.integers(0, 2**62))
def test_any_size(min_length: int | None, length: int, start: int) -> None:
    task = EvenPairs(min_length=min_length)
    if not legal(task, length):
        with pytest.raises(ValueError, match=rf"length \d+ is too short; use length >= {min_length or 2}"):
            task.check_length(length)
        return
    batch = task.sample(Rows.span([1], "test", start, 4), length)
    for i in range(4):
        targets, _, size = algebra.even_pairs(task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.length[0, i] == size >= (min_length or length)


@pytest.mark.parametrize("min_length", [1, -3])
def test_a_min_length_of_no_pair(min_length: int) -> None:
    with pytest.raises(ValueError, match=f"even_pairs: min_length is {min_length} bits; use 2 or more"):
        EvenPairs(min_length=min_length)
