"""Selective copying: the law of the places, as in MAD and as by default."""

from __future__ import annotations

import re
from itertools import combinations
from math import comb
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.rows import Rows
from statelab.tasks.selective_copying import SelectiveCopying
from tests.tasks import recall, recall_laws
from tests.tasks.statistics import assert_law, assert_uniform

ints = st.integers


def rows(count: int) -> Rows:
    return Rows.span([5], "train", 0, count)


@pytest.mark.parametrize("compat", [False, True])
def test_the_law_is_that_of_a_slow_generator(compat: bool) -> None:
    task = SelectiveCopying(vocab=7, copies=4, peer_compat=compat)
    recall_laws.assert_same_rows(
        task.sample(rows(15_000), 20),
        lambda random: recall_laws.selective_copying(random, 7, 4, 20, compat),
        vocab=7,
    )


def test_places_are_uniform() -> None:
    batch = SelectiveCopying(vocab=5, copies=3).sample(rows(20_000), 11)
    there = (batch.inputs[0, :, :7] < 3).long() @ (2 ** torch.arange(7))
    chosen = {sum(1 << place for place in places) for places in combinations(range(7), 3)}
    assert_law(there, [1 / comb(7, 3) if cell in chosen else 0.0 for cell in range(128)])


def test_blanks_fall_before_tokens_as_in_mad() -> None:
    """Of n tokens each blank falls before one; so the last token always touches the copy token."""
    batch = SelectiveCopying(vocab=5, copies=3, peer_compat=True).sample(rows(20_000), 11)
    assert (batch.inputs[0, :, 6] < 3).all()
    places = (batch.inputs[0, :, :7] < 3).nonzero()[:, 1].view(-1, 3)
    before_first, between = places[:, 0], places[:, 1] - places[:, 0] - 1
    law = [0.0] * 25
    for a in range(5):
        for b in range(5 - a):
            law[5 * a + b] = comb(4, a) * comb(4 - a, b) / 3**4
    assert_law(5 * before_first + between, law)


def test_tokens_are_uniform_and_independent() -> None:
    batch = SelectiveCopying(vocab=6, copies=3).sample(rows(20_000), 12)
    assert_uniform(batch.targets[0, :, -3:] @ torch.tensor([16, 4, 1]), 64)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"vocab": 3}, r"vocab is 3; use 4 … 2\^31"), ({"copies": 0}, "copies is 0; use 1 or more")],
)
def test_settings_that_cannot_work(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^selective_copying: {sentence}"):
        SelectiveCopying(**fields)


def test_a_length_that_is_too_long() -> None:
    with pytest.raises(ValueError, match=r"length 2000000 is too long; use 34 … 2\^20"):
        SelectiveCopying().check_length(2_000_000)


@settings(deadline=None, max_examples=60)
@given(vocab=ints(2, 12), copies=ints(-1, 12), length=ints(0, 60), compat=st.booleans(), start=ints(0, 2**62))
def test_any_sizes(vocab: int, copies: int, length: int, compat: bool, start: int) -> None:
    def make() -> SelectiveCopying:
        return SelectiveCopying(vocab=vocab, copies=copies, peer_compat=compat)

    refused = recall.refusal(make, length)
    assert bool(refused) != (vocab >= 4 and copies >= 1 and length >= 2 * copies + 2), refused
    if refused:
        assert re.match(r"selective_copying: .* use .*\d", refused)
        return
    batch = make().sample(Rows.span([7], "train", start, 4), length)
    for i in range(4):
        targets, distance, _ = recall.selective_copying(make(), batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.distance is not None
        assert batch.distance[0, i].tolist() == distance
