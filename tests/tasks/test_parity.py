"""Parity: the law of its sizes and answers."""

from __future__ import annotations

import pytest

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


def test_a_length_equal_to_min_length_leaves_one_size() -> None:
    assert (Parity(min_length=4).sample(ROWS, 4).length == 4).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
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
