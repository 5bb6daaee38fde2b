"""Parity: the law of its sizes and answers."""

from __future__ import annotations

import pytest
import torch

from statelab.tasks.batch import IGNORE
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows
from tests.tasks.statistics import assert_uniform

ROWS = Rows.span([5], "validation", 0, 8_000)


def test_sizes_are_uniform_and_answers_even() -> None:
    batch = Parity(min_length=2).sample(ROWS, 12)
    assert_uniform(batch.length - 2, 11)
    answers = batch.targets[batch.targets != IGNORE]
    assert answers.shape == (8_000,)
    assert_uniform((batch.length[0] - 2) * 2 + answers - 1, 22)


def test_every_row_has_the_length_without_min_length() -> None:
    batch = Parity().sample(ROWS, 9)
    assert (batch.length == 9).all()
    assert_uniform((batch.inputs - 1) @ (2 ** batch.inputs.new_tensor(range(9))), 512)


def test_running_answers_are_even_everywhere() -> None:
    batch = Parity(answer="running").sample(ROWS, 70)
    for t in (0, 31, 32, 69):
        assert_uniform(batch.targets[..., t], 2)


@pytest.mark.parametrize("modulus", [3, 10, 97])
def test_digits_are_uniform_and_so_are_their_sums(modulus: int) -> None:
    batch = Parity(modulus=modulus, min_length=3).sample(ROWS, 7)
    shown = batch.inputs[batch.inputs > 0]
    assert_uniform(shown - 1, modulus)
    assert_uniform(batch.targets[batch.targets != IGNORE] - 1, modulus)
    running = Parity(modulus=modulus, answer="running").sample(ROWS, 7)
    for t in (0, 1, 6):
        assert_uniform(running.inputs[..., t], modulus)
        assert_uniform(running.targets[..., t], modulus)


def test_the_same_digits_are_asked_for_at_the_last_and_after_each() -> None:
    last = Parity(modulus=5).sample(ROWS, 30)
    running = Parity(modulus=5, answer="running").sample(ROWS, 30)
    assert torch.equal(last.inputs - 1, running.inputs)
    assert torch.equal(last.targets[..., -1] - 1, running.targets[..., -1])


def test_rows_of_bits_are_those_they_always_were() -> None:
    batch = Parity(min_length=3).sample(Rows.span([7], "train", 5, 2), 9)
    assert batch.inputs.tolist() == [[[1, 1, 2, 2, 2, 2, 0, 0, 0], [1, 1, 2, 2, 2, 0, 0, 0, 0]]]
    asked = [(i, t, int(batch.targets[0, i, t])) for i, t in (batch.targets[0] != IGNORE).nonzero().tolist()]
    assert asked == [(0, 5, 1), (1, 4, 2)]


@pytest.mark.parametrize(
    ("task", "kinds", "words"),
    [
        (Parity(), {"pad": range(1), "bit": range(1, 3)}, "_ 0 1"),
        (Parity(modulus=3), {"pad": range(1), "digit": range(1, 4)}, "_ 0 1 2"),
        (Parity(modulus=3, answer="running"), {"digit": range(3)}, "0 1 2"),
    ],
    ids=str,
)
def test_tokens_are_digits_behind_padding(task: Parity, kinds: dict[str, range], words: str) -> None:
    assert task.kinds == kinds
    assert [task.describe(token) for token in range(task.vocab_size)] == words.split()
    assert task.num_answers == task.modulus


def test_a_length_equal_to_min_length_leaves_one_size() -> None:
    assert (Parity(min_length=4).sample(ROWS, 4).length == 4).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"modulus": 1}, "modulus is 1; use 2 to 1024"),
        ({"modulus": 1025}, "modulus is 1025; use 2 to 1024"),
        ({"answer": "first"}, "answer is 'first'; use 'last' or 'running'"),
        ({"min_length": 0}, "min_length is 0 bits; use 1 or more"),
        ({"answer": "running", "min_length": 3}, "min_length pads rows, which answer='running' does not"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Parity(**settings)  # type: ignore[arg-type]


def test_a_length_below_min_length() -> None:
    with pytest.raises(ValueError, match="length 4 is too short; use length >= 5"):
        Parity(min_length=5).check_length(4)
