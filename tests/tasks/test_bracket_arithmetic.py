"""Arithmetic with brackets: printed rows, the law of sizes and trees against slow code, refusals."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.bracket_arithmetic import BracketArithmetic
from statelab.tasks.rows import Rows
from tests.tasks import algebra
from tests.tasks.cases import legal
from tests.tasks.statistics import assert_law, assert_uniform

ROWS = Rows.span([5], "train", 0, 20_000)


def lay_out(task: BracketArithmetic, tokens: list[int], length: int) -> Batch:
    """The batch made of the draws behind an expression; draws that are not used are not neutral."""
    tree, rest = algebra.parse(tokens, task.modulus)
    assert not rest
    N = max(1, (length - 4) // 4)
    split, operator, digit = [2**32 - 1] * N, [2] * N, [1] * (2 * N + 1)
    queue, inner = [(0, tree)], 0
    for j, found in queue:
        if found[0] == "leaf":
            digit[j] = found[1]
            continue
        _, left, operator[inner], right, size = found
        split[inner] = -(-((left[-1] - 1) << 32) // (size - 4))
        inner += 1
        queue += [(2 * inner - 1, left), (2 * inner, right)]
    draws = (torch.tensor([[values]], dtype=torch.int64) for values in (split, operator, digit))
    size_RB = torch.tensor([[len(tokens) + 3]])
    split_RBN, operator_RBN, digit_RBS = draws
    return task.lay_out(size_RB, split_RBN, operator_RBN, digit_RBS, length)


PUBLISHED = {
    "((2+1)+(0))": (False, [8, 8, 2, 5, 1, 9, 5, 8, 0, 9, 9], 3),
    "((0+4)-2)": (False, [8, 8, 0, 5, 4, 9, 6, 2, 9], 2),
    "((-0-(1))--4)": (True, [8, 8, 6, 0, 6, 8, 1, 9, 9, 6, 6, 4, 9], 3),
    "((3--3)-(-3))": (True, [8, 8, 3, 6, 6, 3, 9, 6, 8, 6, 3, 9, 9], 4),
    "-4": (True, [6, 4], 1),
}


@pytest.mark.parametrize("spare", [0, 1, 9])
@pytest.mark.parametrize("text", PUBLISHED)
def test_rows_printed_by_the_published_generators(text: str, spare: int) -> None:
    """Three of unlocking_state_tracking and two of the Chomsky-hierarchy code."""
    multiply, tokens, answer = PUBLISHED[text]
    size, width = len(tokens) + 1, len(tokens) + 2 + spare
    task = BracketArithmetic(multiply=multiply)
    assert "".join(map(task.describe, tokens)) == text
    batch = lay_out(task, tokens, width + 1)
    assert batch.inputs[0, 0].tolist() == [*tokens, 10] + [11] * (width - size)
    assert batch.targets[0, 0].tolist() == [answer if t == size - 1 else IGNORE for t in range(width)]
    assert batch.length.tolist() == [[size]]


def test_peer_compat_shows_a_zero_where_the_answer_was() -> None:
    tokens, task = [6, 4], BracketArithmetic(peer_compat=True)
    batch = lay_out(task, tokens, 8)
    assert batch.inputs.tolist() == [[[6, 4, 10, 0, 11, 11, 11]]]
    assert batch.length.tolist() == [[3]]
    plain = BracketArithmetic(min_length=5).sample(ROWS, 30)
    shown = BracketArithmetic(min_length=5, peer_compat=True).sample(ROWS, 30)
    assert torch.equal(plain.targets, shown.targets)
    assert torch.equal((plain.inputs != shown.inputs).nonzero()[:, -1], plain.length.flatten())


def comb(length: int, right: bool, m: int) -> list[int]:
    """The deepest expression: each part but the innermost is one digit beside the next one."""
    if length < 5:
        return algebra.expression(Random(length), length, m, True)
    rest = comb(length - 4, right, m)
    parts = [rest, [1]] if right else [[1], rest]
    return [m + 3, *parts[0], m + length % 3, *parts[1], m + 4]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("length", [9, 12, 61, 253])
def test_the_deepest_expressions(length: int, right: bool) -> None:
    tokens, task = comb(length, right, 5), BracketArithmetic(multiply=True)
    batch = lay_out(task, tokens, length + 3)
    assert batch.inputs[0, 0].tolist() == [*tokens, 10, 11]
    assert batch.targets[0, 0, length] == algebra.value(algebra.parse(tokens, 5)[0], 5)


@settings(deadline=None, max_examples=100)
@given(size=st.integers(2, 120), spare=st.integers(0, 40), seed=st.integers(0, 2**32), m=st.integers(2, 20))
def test_every_expression_comes_of_its_draws(size: int, spare: int, seed: int, m: int) -> None:
    tokens = algebra.expression(Random(seed), size, m, True)
    batch = lay_out(BracketArithmetic(modulus=m, multiply=True), tokens, size + 3 + spare)
    assert batch.inputs[0, 0].tolist() == [*tokens, m + 5] + [m + 6] * (1 + spare)
    assert batch.targets[0, 0, size] == algebra.value(algebra.parse(tokens, m)[0], m)


def test_sizes_are_uniform_but_the_smallest() -> None:
    """Of 3 … 40, sizes 3, 4 and 5 make one, in all 3/38: the published law."""
    size = BracketArithmetic(min_length=3).sample(ROWS, 40).length + 2
    assert_law(size, [0] * 5 + [3 / 38] + [1 / 38] * 35)
    assert_uniform(BracketArithmetic(min_length=40).sample(ROWS, 60).length - 38, 21)
    assert (BracketArithmetic().sample(ROWS, 17).length == 15).all()


@cache
def skeletons(length: int) -> dict[str, float]:
    """Every shape of an expression, with d for a digit and o for an operator, and its probability."""
    if length < 5:
        return {["d", "-d", "(d)", "(-d)"][length - 1]: 1.0}
    law: dict[str, float] = {}
    for left in range(1, length - 3):
        for a, p in skeletons(left).items():
            for b, q in skeletons(length - 3 - left).items():
                law[f"({a}o{b})"] = law.get(f"({a}o{b})", 0.0) + p * q / (length - 4)
    return law


@pytest.mark.parametrize("length", range(2, 16))
def test_shapes_have_exactly_the_grammars_law(length: int) -> None:
    law = skeletons(length)
    found = BracketArithmetic().sample(ROWS, length + 3).inputs[0, :, :length].tolist()
    place = {shape: i for i, shape in enumerate(law)}
    shapes = [place[shape(tokens)] for tokens in found]
    assert_law(torch.tensor(shapes), list(law.values()))


def shape(tokens: list[int]) -> str:
    """A − is an operator behind a digit or a bracket, and otherwise a sign."""
    text = ""
    for token in tokens:
        operator = token in (5, 6, 7) and text[-1:] in ("d", ")")
        text += "o" if operator else "d" if token < 5 else " +-*()"[token - 4]
    return text


@pytest.mark.parametrize(("modulus", "multiply"), [(5, False), (5, True), (3, True)])
def test_digits_and_operators_are_uniform_and_independent(modulus: int, multiply: bool) -> None:
    """Of rows of 9 tokens, those of the shape (d o (d o d)), a fifth of all."""
    row = BracketArithmetic(modulus=modulus, multiply=multiply).sample(ROWS, 12).inputs[0]
    row = row[(row[:, 1] < modulus) & (row[:, 4] < modulus)]
    assert 3_700 < len(row) < 4_300
    a, b, c, o, p = row[:, 1], row[:, 4], row[:, 6], row[:, 2] - modulus, row[:, 5] - modulus
    kinds = 3 if multiply else 2
    assert_uniform((a * modulus + b) * modulus + c, modulus**3)
    assert_uniform((o * kinds + p) * modulus + b, kinds**2 * modulus)


@pytest.mark.parametrize("multiply", [False, True])
def test_rows_are_those_of_the_published_law(multiply: bool) -> None:
    count, random = 6_000, Random(3)
    task = BracketArithmetic(min_length=40, multiply=multiply)
    rows = [algebra.published_brackets(random, 40, 256, 5, multiply) for _ in range(count)]
    batch = task.sample(Rows.span([5], "validation", 0, count), 256)
    own = algebra.unpadded(batch)
    algebra.assert_same_law(algebra.bigrams(own, 12), algebra.bigrams(rows, 12))
    for measure in (
        len,
        depth,
        lambda row: sum(token < 5 for token in row),
        lambda row: len(first_part(row)),
    ):
        counts = [np.bincount([measure(row) for row in found], minlength=256) for found in (own, rows)]
        algebra.assert_same_law(*counts)
    answers = [algebra.value(algebra.parse(row[:-1], 5)[0], 5) for row in rows]
    found = batch.targets[batch.targets != IGNORE]
    algebra.assert_same_law(np.bincount(found, minlength=5), np.bincount(answers, minlength=5))


def depth(row: list[int]) -> int:
    return int(np.cumsum([(token == 8) - (token == 9) for token in row]).max())


def first_part(row: list[int]) -> list[int]:
    """What is behind the left part of the whole expression."""
    return algebra.parse(row[1:], 5)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "length"), [
    (BracketArithmetic(min_length=3), 40),
    (BracketArithmetic(min_length=40), 256),
    (BracketArithmetic(min_length=3, multiply=True), 80),
    (BracketArithmetic(modulus=1024, multiply=True, min_length=40), 256),
], ids=str)  # fmt: skip
def test_no_answer_in_100_000_rows_is_wrong(task: BracketArithmetic, length: int) -> None:
    batch = task.sample(Rows.span([8], "validation", 0, 100_000), length)
    for i, row in enumerate(algebra.unpadded(batch)):
        text = "".join(map(task.describe, row[:-1]))
        assert batch.targets[0, i, len(row) - 1] == eval(text) % task.modulus, text


@settings(deadline=None, max_examples=80)
@given(
    modulus=st.integers(2, 1024),
    multiply=st.booleans(),
    compat=st.booleans(),
    min_length=st.none() | st.integers(1, 60),
    length=st.integers(1, 90),
    start=st.integers(0, 2**62),
)
def test_any_size(
    modulus: int, multiply: bool, compat: bool, min_length: int | None, length: int, start: int
) -> None:
    task = BracketArithmetic(modulus=modulus, multiply=multiply, min_length=min_length, peer_compat=compat)
    if not legal(task, length):
        least = max(min_length or 5, 5)
        with pytest.raises(ValueError, match=rf"length \d+ is too short; use length >= {least}"):
            task.check_length(length)
        return
    batch = task.sample(Rows.span([1], "test", start, 4), length)
    for i in range(4):
        row = batch.inputs[0, i].tolist()
        targets, _, size = algebra.bracket_arithmetic(task, row)
        assert batch.targets[0, i].tolist() == targets
        assert batch.length[0, i] == size
        assert (min_length or length) <= size + 2 <= length == len(row) + 1 or size == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"modulus": 1}, "bracket_arithmetic: modulus is 1; use 2 to 1024"),
        ({"modulus": 1025}, "modulus is 1025; use 2 to 1024"),
        ({"min_length": 0}, "min_length is 0; use 1 or more"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        BracketArithmetic(**options)  # type: ignore[arg-type]
