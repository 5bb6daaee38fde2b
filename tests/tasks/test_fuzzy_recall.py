"""Fuzzy recall: MAD's law against a slow generator, and the rows that MAD leaves without an answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE
from statelab.tasks.fuzzy_recall import FuzzyRecall
from statelab.tasks.rows import Rows, Split
from tests.tasks import recall, recall_laws
from tests.tasks.statistics import assert_mean

ints = st.integers
SPLITS: list[Split] = ["train", "test"]

LAWS: list[tuple[dict[str, Any], int]] = [
    ({"vocab": 8, "key_tokens": 2, "value_tokens": 2}, 24),
    ({"vocab": 8, "key_tokens": 2, "value_tokens": 2, "peer_compat": True}, 24),
    ({"vocab": 11, "key_tokens": 2, "value_tokens": 2, "multi_query": False, "peer_compat": True}, 13),
    ({"vocab": 9, "key_tokens": 1, "value_tokens": 3, "noise_vocab": 2, "noise": 0.6}, 20),
    ({"vocab": 9, "key_tokens": 3, "value_tokens": 1, "multi_query": False}, 26),
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("fields", "length"), LAWS, ids=str)
def test_the_law_is_that_of_a_slow_generator(fields: dict[str, Any], length: int, split: Split) -> None:
    task = FuzzyRecall(**fields)
    recall_laws.assert_same_rows(
        task.sample(Rows.span([5], split, 0, 15_000), length),
        lambda random: recall_laws.fuzzy_recall(random, task, length, split == "train"),
        vocab=task.vocab,
    )


def never_shown(task: FuzzyRecall, split: Split, count: int) -> Any:
    """Which of MAD's rows have a last key that the row did not show before."""
    batch = task.sample(Rows.span([5], split, 0, count), 128)
    keys = len(task.kinds["key"])
    found = []
    for row in batch.inputs[0].tolist():
        words = "".join(chr(97 + token) if token < keys else "." for token in row).split(".")
        *before, last = [word for word in words if word]
        found.append(last not in before)
    return batch, found


@pytest.mark.parametrize("split", SPLITS)
def test_the_last_key_was_shown(split: Split) -> None:
    _, found = never_shown(FuzzyRecall(), split, 1_000)
    assert not any(found)


def test_published_share_of_rows_without_an_answer() -> None:
    """2.5 % of mad-lab's evaluation rows at vocab 16 and length 128."""
    batch, found = never_shown(FuzzyRecall(peer_compat=True), "test", 6_000)
    assert_mean(batch.distance.new_tensor(found), 0.025)
    assert batch.distance[0, found, -1].tolist() == [
        size - row[::-1].index(IGNORE) - 2
        for size, row in zip(batch.length[0, found].tolist(), batch.targets[0, found].tolist(), strict=True)
    ]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("multi_query", [True, False])
def test_answers_are_numbered(split: Split, multi_query: bool) -> None:
    task = FuzzyRecall(vocab=9, key_tokens=2, multi_query=multi_query)
    batch = task.sample(Rows.span([5], split, 0, 200), 60)
    assert batch.group is not None
    for row, group in zip(batch.inputs[0].tolist(), batch.group[0].tolist(), strict=True):
        assert recall.fuzzy_answers(task, row)[2] == group


def test_keys_are_shorter_in_training_alone() -> None:
    task = FuzzyRecall(noise=0.0)
    for split in SPLITS:
        row = task.sample(Rows.span([5], split, 0, 1), 128).inputs[0, 0].tolist()
        words = "".join("k" if token < 7 else "." for token in row).split(".")
        sizes = {len(word) for word in words[:-1] if word}
        assert sizes == ({1, 2, 3} if split == "train" else {3})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"loss_on": "some"}, "loss_on is 'some'; use 'all' or 'scored'"),
        ({"noise": 1.0}, r"noise is 1.0; it is a chance, in \[0, 1\)"),
        ({"noise": 0.5}, "noise_vocab is 0; use 1 or more"),
        ({"noise_vocab": -1}, "noise_vocab is -1; use 1 or more"),
        ({"key_tokens": 0}, "key_tokens 0 and value_tokens 3 given; use 1 or more"),
        ({"vocab": 6}, "vocab 6 leaves 5 tokens for keys and values.*use vocab >= 7 or shorter"),
        ({"vocab": 7, "multi_query": False}, "vocab 7 leaves 5 .* use vocab >= 8"),
        ({"vocab": 40, "key_tokens": 16}, r"more than 2\^62 keys of 16 tokens"),
    ],
)
def test_settings_that_cannot_work(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^fuzzy_recall: .*{sentence}"):
        FuzzyRecall(**fields)


@settings(deadline=None, max_examples=80)
@given(
    vocab=ints(2, 24),
    key_tokens=ints(0, 4),
    value_tokens=ints(0, 4),
    noise_vocab=ints(0, 4),
    noise=st.sampled_from([0.0, 0.5, 0.95]),
    multi_query=st.booleans(),
    length=ints(0, 60),
    split=st.sampled_from(SPLITS),
    start=ints(0, 2**62),
)
def test_any_sizes(length: int, split: Split, start: int, **fields: Any) -> None:
    content = fields["vocab"] - fields["noise_vocab"] - (1 if fields["multi_query"] else 2)
    K, V = fields["key_tokens"], fields["value_tokens"]
    fits = min(K, V) >= 1 and content // 2 >= K and content - content // 2 >= max(2, V) and content >= 3
    fits = fits and fields["noise_vocab"] >= (fields["noise"] > 0) and length >= 2 * (K + V) + 1
    refused = recall.refusal(lambda: FuzzyRecall(**fields), length)
    assert bool(refused) != fits, refused
    if refused:
        assert re.match(r"fuzzy_recall: .* use .*\d", refused)
        return
    task = FuzzyRecall(**fields)
    batch = task.sample(Rows.span([7], split, start, 4), length)
    for i in range(4):
        targets, distance, group = recall.fuzzy_answers(task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.distance is not None
        assert batch.group is not None
        assert batch.distance[0, i].tolist() == distance
        assert batch.group[0, i].tolist() == group
