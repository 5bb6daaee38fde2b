"""Cycle navigation: worked rows, the law of sizes, moves and places, refusals."""

from __future__ import annotations

from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE
from statelab.tasks.cycle_navigation import CycleNavigation
from statelab.tasks.rows import Rows
from tests.tasks import algebra
from tests.tasks.cases import legal
from tests.tasks.statistics import assert_law, assert_uniform

ROWS = Rows.span([5], "validation", 0, 8_000)
TOKEN = {0: 1, 1: 2, -1: 3}


@pytest.mark.parametrize(
    ("moves", "place"),
    [([1, -1, 0, -1, -1], 3), ([1, 1, 1, -1], 2), ([-1], 4), ([1, 1, 1, 1, 1], 0), ([0, 0], 0)],
    ids=str,
)
def test_worked_rows(moves: list[int], place: int) -> None:
    """The first two are those of the Chomsky-hierarchy code."""
    T, size = 9, len(moves)
    row = [TOKEN[move] for move in moves]
    # What lies behind the size was drawn and is not shown.
    draws = torch.tensor([[row + [2] * (T - size)]]), torch.tensor([[size]])
    batch = CycleNavigation().lay_out(*draws)
    assert batch.inputs[0, 0].tolist() == row + [0] * (T - size)
    assert batch.targets[0, 0].tolist() == [4 + place if t == size - 1 else IGNORE for t in range(T)]
    assert batch.length.tolist() == [[size]]
    running = CycleNavigation(answer="running").lay_out(*draws).targets[0, 0].tolist()
    assert running == [4 + sum(moves[: t + 1]) % 5 for t in range(size)] + [IGNORE] * (T - size)


def test_longer_steps_and_their_names() -> None:
    task = CycleNavigation(cycle=7, reach=2)
    assert [task.describe(i) for i in range(task.vocab_size)] == [
        *("_", "0", "+1", "+2", "-1", "-2"),
        *(f"@{place}" for place in range(7)),
    ]
    batch = task.lay_out(torch.tensor([[[3, 3, 4, 5, 5, 5]]]), torch.tensor([[6]]))
    assert batch.targets[0, 0, -1] == 6 + (2 + 2 - 1 - 2 - 2 - 2) % 7


def test_sizes_and_moves_are_uniform_and_independent() -> None:
    batch = CycleNavigation(min_length=2, reach=2).sample(ROWS, 12)
    assert_uniform(batch.length - 2, 11)
    assert (CycleNavigation().sample(ROWS, 12).length == 12).all()
    moves = CycleNavigation().sample(ROWS, 12).inputs - 1
    for t in (0, 3, 11):
        assert_uniform(moves[..., t] * 3 + moves[..., (t + 1) % 12], 9)


@pytest.mark.parametrize("T", [1, 2, 6])
def test_places_follow_the_trinomial_law(T: int) -> None:
    law = [0.0] * 5
    for ahead in range(T + 1):
        for back in range(T + 1 - ahead):
            law[(ahead - back) % 5] += comb(T, ahead) * comb(T - ahead, back) / 3**T
    assert_law(CycleNavigation().sample(ROWS, T).targets[..., -1] - 4, law)


@settings(deadline=None, max_examples=60)
@given(
    cycle=st.integers(2, 40),
    reach=st.integers(1, 39),
    running=st.booleans(),
    min_length=st.none() | st.integers(1, 40),
    length=st.integers(0, 70),
    start=st.integers(0, 2**62),
)
def test_any_size(
    cycle: int, reach: int, running: bool, min_length: int | None, length: int, start: int
) -> None:
    answer = "running" if running else "last"
    task = CycleNavigation(cycle=cycle, reach=min(reach, cycle - 1), answer=answer, min_length=min_length)  # type: ignore[arg-type]
    if not legal(task, length):
        with pytest.raises(ValueError, match=rf"length \d+ is too short; use length >= {min_length or 1}"):
            task.check_length(length)
        return
    batch = task.sample(Rows.span([1], "test", start, 4), length)
    for i in range(4):
        targets, _, size = algebra.cycle_navigation(task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.length[0, i] == size >= (min_length or length)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cycle": 1}, "cycle_navigation: cycle is 1 places; use 2 to 1024"),
        ({"cycle": 1025}, "cycle is 1025 places; use 2 to 1024"),
        ({"reach": 0}, "reach is 0 of 5 places; use 1 to 4"),
        ({"reach": 5}, "reach is 5 of 5 places; use 1 to 4"),
        ({"answer": "first"}, "answer is 'first'; use 'last' or 'running'"),
        ({"min_length": 0}, "min_length is 0 moves; use 1 or more"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CycleNavigation(**options)  # type: ignore[arg-type]
