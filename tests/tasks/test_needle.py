"""Needle: RULER's table, the law of the rows against a slow generator, and what keeps keys apart."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.needle import Needle
from statelab.tasks.needle_rows import depths, draw_words
from statelab.tasks.needle_shape import PRESETS, Words
from statelab.tasks.rows import Rows
from tests.tasks import recall, recall_laws
from tests.tasks.statistics import assert_law, assert_mean, assert_uniform

ints = st.integers


def rows(count: int) -> Rows:
    return Rows.span([5], "train", 0, count)


# Haystack, tokens of a key and of a value, keys, values of each, queried keys.
RULER = {
    "single_1": ("block", 2, 7, 1, 1, 1),
    "single_2": ("essay", 2, 7, 1, 1, 1),
    "single_3": ("essay", 2, 32, 1, 1, 1),
    "multikey_1": ("essay", 2, 7, 4, 1, 1),
    "multikey_2": ("needles", 2, 7, 1, 1, 1),
    "multikey_3": ("needles", 32, 32, 1, 1, 1),
    "multivalue": ("essay", 2, 7, 1, 4, 1),
    "multiquery": ("essay", 2, 7, 4, 1, 4),
}


@pytest.mark.parametrize("variant", RULER)
def test_a_variant_is_as_in_rulers_table(variant: Any) -> None:
    haystack, k, v, keys, values, queries = RULER[variant]
    task = Needle(variant=variant)
    row = task.sample(rows(1), 1000).inputs[0, 0]
    kind = {name: [t in ids for t in row.tolist()] for name, ids in task.kinds.items()}
    needles = keys * values
    if haystack == "needles":
        needles = (1000 - 3 - queries * k - queries * values * v) // (k + v + 3)
    assert sum(kind["needle"]) == needles
    assert sum(kind["key"]) == k * (needles + queries)
    # The last token of the answers is not read.
    assert sum(kind["value"]) == v * (needles + queries * values) - 1
    filler = row[torch.tensor(kind["filler"])]
    assert len(set(filler.tolist())) == {"block": 16, "essay": 64}.get(haystack, len(set(filler.tolist())))
    if haystack == "block":
        assert torch.equal(filler - filler[0], torch.arange(len(filler)) % 16)
    base = 10 if v == 7 else 16
    assert task.num_answers == base == len(task.kinds["value"])


def test_every_variant_is_tested() -> None:
    assert set(RULER) == set(PRESETS)


LAWS: list[tuple[dict[str, Any], int]] = [
    ({"variant": "single_1", "block": 3, "filler_vocab": 3}, 27),
    ({"variant": "single_1", "block": 2, "filler_vocab": 2, "keys": 2, "queries": 2}, 33),
    ({"variant": "single_2", "filler_vocab": 3, "key_tokens": 1}, 27),
    ({"variant": "multikey_1", "filler_vocab": 2, "keys": 3}, 35),
    ({"variant": "multikey_2", "filler_vocab": 2}, 42),
    ({"variant": "multivalue", "filler_vocab": 2, "values": 3}, 42),
    ({"variant": "multiquery", "filler_vocab": 2, "keys": 3, "queries": 2, "key_tokens": 1}, 40),
]


@pytest.mark.parametrize(("fields", "length"), LAWS, ids=str)
def test_the_law_is_that_of_a_slow_generator(fields: dict[str, Any], length: int) -> None:
    task = Needle(value_tokens=1, word_vocab=3, **fields)
    recall_laws.assert_same_rows(
        task.sample(rows(15_000), length),
        lambda random: recall_laws.needle(random, task, length),
        task.vocab_size,
    )


def test_depths_are_rulers_grid() -> None:
    assert depths(torch.arange(40)).tolist() == np.round(np.linspace(0, 100, 40)).astype(int).tolist()


def test_places_in_an_essay_are_depths() -> None:
    task = Needle(variant="single_2")
    hay = 200
    batch = task.sample(rows(20_000), hay + 24)
    place = (batch.inputs[0] == task.kinds["needle"].start).long().argmax(-1) - 1
    law = [0.0] * (hay + 1)
    for depth in np.round(np.linspace(0, 100, 40)):
        law[int(hay * depth / 100)] += 1 / 40
    assert_law(place, law)


@pytest.mark.parametrize("variant", ["single_1", "multikey_2"])
def test_a_needle_never_stands_at_the_end(variant: Any) -> None:
    """It stands before one of the blocks, all equally likely."""
    task = Needle(variant=variant, key_tokens=1, value_tokens=1, word_vocab=20)
    unit = 16 if variant == "single_1" else 5
    batch = task.sample(rows(20_000), 5 + 5 + 6 * unit)
    asked = batch.inputs[0, :, -2]
    keys = batch.inputs[0, :, :-2] == asked[:, None]
    place = (keys.long().argmax(-1) - 2).div(unit, rounding_mode="floor")
    assert_uniform(place, 6)


def test_answers_are_numbered() -> None:
    for fields in (
        {"variant": "multivalue"},
        {"variant": "multiquery"},
        {"values": 2, "keys": 3, "queries": 2},
    ):
        task = Needle(**fields)  # type: ignore[arg-type]
        batch = task.sample(rows(50), 200)
        assert batch.group is not None
        for row, group in zip(batch.inputs[0].tolist(), batch.group[0].tolist(), strict=True):
            assert recall.needle_answers(task, row)[2] == group


def test_keys_and_values_differ_unless_collisions_are_rulers() -> None:
    fields: dict[str, Any] = {"variant": "multiquery", "key_tokens": 1, "value_tokens": 1, "word_vocab": 5}
    same = {}
    for collisions in (False, True):
        task = Needle(ruler_collisions=collisions, **fields)
        needles = task.sample(rows(20_000), 60).inputs[0] == task.kinds["needle"].start
        inputs = task.sample(rows(20_000), 60).inputs[0]
        keys, values = (inputs[:, by:][needles[:, : inputs.shape[1] - by]].view(-1, 4) for by in (1, 3))
        same[collisions] = [
            torch.tensor([len(set(x)) < 4 for x in found.tolist()]) for found in (keys, values)
        ]
    assert not any(found.any() for found in same[False])
    assert_mean(same[True][0], 1 - 5 * 4 * 3 * 2 / 5**4)
    assert_mean(same[True][1], 1 - 9 * 8 * 7 * 6 / 9**4)


@pytest.mark.parametrize(
    "words", [Words(2, 5), Words(3, 10, 1), Words(5, 25), Words(32, 16), Words(20, 10, 1)], ids=str
)
@pytest.mark.parametrize("different", [False, True])
def test_words_are_uniform(words: Words, different: bool) -> None:
    found = draw_words(rows(4_000), 0, 12, words, different)[0]
    assert found.shape == (4_000, 12, words.tokens)
    for i in (0, words.tokens - 1):
        first = words.first if i == 0 else 0
        assert_uniform(found[:, :, i] - first, words.base - first)
    pair = (found[..., 0] - words.first) * words.base + found[..., -1]
    assert_uniform(pair[:, 3], (words.base - words.first) * words.base)
    if different:
        assert all(len({tuple(word) for word in row}) == 12 for row in found.tolist())


def test_all_words_can_be_needed() -> None:
    for words in (Words(2, 5), Words(3, 4, 1)):
        found = draw_words(rows(50), 0, words.number, words, True)[0]
        assert all(len({tuple(word) for word in row}) == words.number for row in found.tolist())


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"variant": "single_4"}, "variant is 'single_4'; use one of single_1, single_2"),
        ({"loss_on": "some"}, "loss_on is 'some'; use 'all' or 'scored'"),
        ({"keys": 0}, r"keys is 0; use 1 … 2\^20"),
        ({"filler_vocab": 0}, r"filler_vocab is 0; use 1 … 2\^20"),
        ({"queries": 2}, "2 queries of 1 keys; use queries <= keys"),
        ({"block": 65}, "block is 65; use 1 … 64, which filler_vocab is"),
        ({"variant": "multikey_1", "keys": 41}, "41 needles for the 40 depths of an essay; use fewer"),
        (
            {"keys": 5, "key_tokens": 1, "word_vocab": 4},
            "5 different keys of 1 tokens are needed and there are 4",
        ),
        (
            {"values": 10, "value_tokens": 1},
            "10 different values of 1 tokens are needed and there are 9; use more",
        ),
    ],
)
def test_settings_that_cannot_work(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^needle: {sentence}"):
        Needle(**fields)


def test_a_haystack_with_more_needles_than_keys() -> None:
    task = Needle(variant="multikey_2", word_vocab=3)
    task.check_length(12 + 9 * 12)
    with pytest.raises(
        ValueError, match=r"length 132 is too long: 10 different keys .* there are 9; use more key"
    ):
        task.check_length(12 + 10 * 12)
    Needle(variant="multikey_2", word_vocab=3, ruler_collisions=True).check_length(1000)
    with pytest.raises(ValueError, match=r"length 2000000 is too long; use 25 … 2\^20"):
        Needle().check_length(2_000_000)


@settings(deadline=None, max_examples=120)
@given(
    variant=st.sampled_from(list(PRESETS)),
    key_tokens=ints(0, 3),
    value_tokens=ints(1, 3),
    keys=ints(1, 4),
    values=ints(1, 3),
    queries=ints(1, 4),
    word_vocab=ints(1, 5),
    filler_vocab=ints(1, 4),
    block=ints(1, 4),
    length=ints(0, 90),
    start=ints(0, 2**62),
)
def test_any_sizes(length: int, start: int, **fields: Any) -> None:
    refused = recall.refusal(lambda: Needle(**fields), length)
    haystack, hexadecimal = PRESETS[fields["variant"]].haystack, fields["variant"] == "multikey_3"
    k, v, keys, values = (fields[name] for name in ("key_tokens", "value_tokens", "keys", "values"))
    needle, needles = k + v + 3, keys * values
    room = length - 3 - fields["queries"] * (k + values * v) - needles * needle
    fits = k > 0 and fields["queries"] <= keys
    fits = fits and (haystack != "block" or fields["block"] <= fields["filler_vocab"])
    places = {"block": -(-room // fields["block"]), "needles": room // needle, "essay": 40}[haystack]
    there = (16 if hexadecimal else fields["word_vocab"]) ** k
    fits = fits and room >= 1 and places >= needles
    fits = fits and keys + (places if haystack == "needles" else 0) <= there
    digits = 16 if fields["variant"] in ("single_3", "multikey_3") else 10
    fits = fits and needles <= (digits - (digits == 10)) * digits ** (v - 1)
    assert bool(refused) != fits, refused
    if refused:
        assert re.match(r"needle: .*\d.* use ", refused)
        return
    task = Needle(**fields)
    batch = task.sample(Rows.span([7], "train", start, 4), length)
    assert batch.distance is not None
    assert batch.group is not None
    for i in range(4):
        targets, distance, group = recall.needle_answers(task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.distance[0, i].tolist() == distance
        assert batch.group[0, i].tolist() == group
