"""Modular arithmetic without brackets: printed rows, sizes, tokens and answers against slow code, refusals."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.modular_arithmetic import ModularArithmetic
from statelab.tasks.rows import Rows
from tests.tasks import algebra
from tests.tasks.cases import legal
from tests.tasks.statistics import assert_uniform

ROWS = Rows.span([6], "train", 0, 20_000)


def lay_out(task: ModularArithmetic, row: list[int], width: int) -> Batch:
    """The batch made of the draws behind a row of digits, operators and "="; unread draws are not neutral."""
    N = width // 2
    digit = [token - 5 for token in row[::2]] + [3] * (N - len(row) // 2)
    operator = row[1:-1:2] + [2] * (N - len(row) // 2 + 1)
    count = torch.tensor([[len(row) // 2]])
    return task.lay_out(torch.tensor([[digit]]), torch.tensor([[operator]]), count, width)


@pytest.mark.parametrize("width", [6, 7, 15])
@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ([9, 2, 7, 2, 6, 4], 6),  # printed by xlstm's generator: 4 - 2 - 1
        ([7, 4], 7),  # and this: 2
        ([8, 3, 9, 1, 9, 4], 6),  # 3 * 4 + 4
        ([8, 1, 9, 3, 9, 4], 9),  # 3 + 4 * 4
        ([5, 2, 9, 3, 8, 4], 8),  # 0 - 4 * 3
    ],
    ids=str,
)
def test_rows_worked_by_hand(row: list[int], answer: int, width: int) -> None:
    batch = lay_out(ModularArithmetic(), row, width)
    size = len(row)
    assert batch.inputs[0, 0].tolist() == row + [0] * (width - size)
    assert batch.targets[0, 0].tolist() == [answer if t == size - 1 else IGNORE for t in range(width)]
    assert batch.length.tolist() == [[size]]


def sizes(batch: Batch) -> list[int]:
    """As the papers count them, with the answer."""
    return sorted(set((batch.length + 1).flatten().tolist()))


@pytest.mark.parametrize(
    ("options", "length", "expected"),
    [
        ({"min_length": 3}, 40, range(3, 40, 2)),
        ({"min_length": 40}, 60, range(41, 60, 2)),
        ({"min_length": 40, "peer_compat": True}, 60, range(39, 60, 2)),
        ({"min_length": 39, "peer_compat": True}, 59, range(39, 60, 2)),
        ({"min_length": 40, "peer_compat": True}, 40, [39]),
        ({"min_length": 3}, 4, [3]),
        ({}, 40, [39]),
        ({}, 41, [41]),
        ({"peer_compat": True}, 40, [39]),
    ],
    ids=str,
)
def test_sizes_are_uniform_over_odd_numbers(
    options: dict[str, int], length: int, expected: range | list[int]
) -> None:
    batch = ModularArithmetic(**options).sample(ROWS, length)  # type: ignore[arg-type]
    assert batch.inputs.shape[-1] == length - 1
    assert sizes(batch) == list(expected)
    assert_uniform((batch.length + 1 - expected[0]) // 2, len(expected))


@pytest.mark.parametrize(("modulus", "multiply"), [(5, True), (5, False), (2, True), (11, True)])
def test_tokens_are_uniform_and_independent(modulus: int, multiply: bool) -> None:
    row = ModularArithmetic(modulus=modulus, multiply=multiply).sample(ROWS, 22).inputs
    digit, operator = row[..., :20:2] - 5, row[..., 1:19:2] - 1
    kinds = 3 if multiply else 2
    assert_uniform(digit, modulus)
    assert_uniform(operator, kinds)
    for i in (0, 3, 8):
        assert_uniform(digit[..., i] * modulus + digit[..., i + 1], modulus**2)
        assert_uniform(operator[..., i] * kinds + operator[..., (i + 1) % 9], kinds**2)
        assert_uniform(digit[..., i] * kinds + operator[..., i], modulus * kinds)


def test_rows_are_those_of_the_published_law() -> None:
    task, random = ModularArithmetic(min_length=40, peer_compat=True), Random(3)
    rows = [algebra.published_sum(random, 40, 256, 5) for _ in range(8_000)]
    batch = task.sample(Rows.span([5], "validation", 0, 8_000), 256)
    own = algebra.unpadded(batch)
    algebra.assert_same_law(algebra.bigrams(own, 10), algebra.bigrams(rows, 10))
    lengths = [np.bincount([len(row) for row in found], minlength=256) for found in (own, rows)]
    algebra.assert_same_law(*lengths)
    answers = batch.targets[batch.targets != IGNORE]
    expected = [5 + eval("".join(map(task.describe, row[:-1]))) % 5 for row in rows]
    algebra.assert_same_law(np.bincount(answers, minlength=10), np.bincount(expected, minlength=10))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "length"), [
    (ModularArithmetic(min_length=3), 40),
    (ModularArithmetic(min_length=40), 256),
    (ModularArithmetic(modulus=1024), 256),
    (ModularArithmetic(modulus=6, multiply=False), 61),
], ids=str)  # fmt: skip
def test_no_answer_in_100_000_rows_is_wrong(task: ModularArithmetic, length: int) -> None:
    batch = task.sample(Rows.span([8], "validation", 0, 100_000), length)
    for i, row in enumerate(algebra.unpadded(batch)):
        text = "".join(map(task.describe, row[:-1]))
        assert batch.targets[0, i, len(row) - 1] == 5 + eval(text) % task.modulus, text


@settings(deadline=None, max_examples=80)
@given(
    modulus=st.integers(2, 1024),
    multiply=st.booleans(),
    compat=st.booleans(),
    min_length=st.none() | st.integers(3, 60),
    length=st.integers(1, 90),
    start=st.integers(0, 2**62),
)
def test_any_size(
    modulus: int, multiply: bool, compat: bool, min_length: int | None, length: int, start: int
) -> None:
    task = ModularArithmetic(modulus=modulus, multiply=multiply, min_length=min_length, peer_compat=compat)
    if not legal(task, length):
        with pytest.raises(ValueError, match=r"length \d+ is too short; use length >= \d+"):
            task.check_length(length)
        return
    batch = task.sample(Rows.span([1], "test", start, 4), length)
    for i in range(4):
        row = batch.inputs[0, i].tolist()
        targets, _, size = algebra.modular_arithmetic(task, row)
        assert batch.targets[0, i].tolist() == targets
        assert batch.length[0, i] == size < length == len(row) + 1
        assert min_length is None or size + 1 >= min_length - compat


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"modulus": 1}, "modular_arithmetic: modulus is 1; use 2 to 1024"),
        ({"modulus": 1025}, "modulus is 1025; use 2 to 1024"),
        ({"min_length": 2}, r"min_length is 2; use 3 \(a digit, '=' and the answer\) or more"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ModularArithmetic(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "length", "least"),
    [
        ({}, 2, 3),
        ({"min_length": 7}, 6, 7),
        ({"min_length": 8}, 8, 9),
        ({"min_length": 8, "peer_compat": True}, 7, 8),
    ],
    ids=str,
)
def test_lengths_that_are_too_short(options: dict[str, int], length: int, least: int) -> None:
    task = ModularArithmetic(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"length {length} is too short; use length >= {least}"):
        task.check_length(length)
    task.check_length(least)
