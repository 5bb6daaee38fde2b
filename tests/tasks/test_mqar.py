"""MQAR: zoology's printed rows, and its law against a slow generator."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.batch import IGNORE
from statelab.tasks.mqar import MQAR, lay_out
from statelab.tasks.rows import Rows
from tests.tasks import recall, recall_laws
from tests.tasks.statistics import assert_law, assert_mean, assert_uniform

ints = st.integers


def rows(count: int, seed: int = 5) -> Rows:
    return Rows.span([seed], "train", 0, count)


ZEROS = [8, 15, 3, 12, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 0, 0]
PUBLISHED: dict[str, tuple[list[int], dict[int, tuple[int, int]]]] = {
    "zeros": (ZEROS, {6: (15, 6), 10: (12, 8)}),
    "random": ([8, 15, 3, 12, 3, 19, 8, 3, 17, 3, 3, 6, 16, 19, 18, 16], {6: (15, 6), 10: (12, 8)}),
    "first slot": ([4, 15, 2, 11, 4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], {4: (15, 4), 8: (11, 6)}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_printed_by_zoology(name: str) -> None:
    row, asked = PUBLISHED[name]
    keys, values = torch.tensor([[row[0:4:2]]]), torch.tensor([[row[1:4:2]]])
    slots = torch.tensor([[[(t - 4) // 2 for t in asked]]])
    none = keys[..., :0]
    inputs, targets, distance = lay_out(keys, values, none, none, slots, torch.tensor([[row[4:]]]))
    assert inputs[0, 0].tolist() == row
    assert targets[0, 0].tolist() == [asked[t][0] if t in asked else IGNORE for t in range(16)]
    assert distance[0, 0].tolist() == [asked[t][1] if t in asked else IGNORE for t in range(16)]


def test_the_row_of_forgetting_mqar_in_its_description() -> None:
    """A 5 B 3 C 7 D 2 A 9 C 1, then A and B are asked for: 9 and 3."""
    a, b, c, d = 21, 22, 23, 24
    keys, values = torch.tensor([[[a, b, c, d]]]), torch.tensor([[[55, 53, 57, 52]]])
    inputs, targets, distance = lay_out(
        keys, values, torch.tensor([[[0, 2]]]), torch.tensor([[[59, 51]]]), torch.tensor([[[0, 1, 3, 5]]]),
        torch.zeros(1, 1, 12, dtype=torch.int64),
    )  # fmt: skip
    assert inputs[0, 0, :12].tolist() == [a, 55, b, 53, c, 57, d, 52, a, 59, c, 51]
    assert inputs[0, 0, 12:].tolist() == [a, 0, b, 0, 0, 0, c, 0, 0, 0, d, 0]
    assert targets[0, 0, [12, 14, 18, 22]].tolist() == [59, 53, 51, 52]
    assert distance[0, 0, [12, 14, 18, 22]].tolist() == [4, 12, 8, 16]


LAWS: list[tuple[dict[str, Any], int]] = [
    ({"pairs": 4}, 30),
    ({"pairs": 4, "peer_compat": True}, 30),
    ({"pairs": 7, "filler": "zero"}, 28),
    ({"pairs": 3, "updates": 2}, 24),
    ({"pairs": 3, "updates": 3, "peer_compat": True, "power": 0.5}, 22),
]


@pytest.mark.parametrize(("fields", "length"), LAWS, ids=str)
def test_the_law_is_that_of_a_slow_generator(fields: dict[str, Any], length: int) -> None:
    task = MQAR(vocab=21, **fields)
    assert isinstance(task.pairs, int)
    pairs = task.pairs
    recall_laws.assert_same_rows(
        task.sample(rows(15_000), length),
        lambda random: recall_laws.mqar(
            random, 21, pairs, length, task.power, task.filler, task.updates, task.peer_compat
        ),
        vocab=21,
    )


def test_published_places_of_queries() -> None:
    """At length 512 and 64 pairs zoology's median query lies 92 tokens behind the pairs; 51 % in a quarter."""
    batch = MQAR(pairs=64).sample(rows(2_000), 512)
    behind = (batch.targets != IGNORE).nonzero()[:, -1].double() - 128
    assert abs(behind.median() - 92) <= 4
    assert abs((behind < 96).double().mean() - 0.51) < 0.01


def test_filler_is_uniform_among_tokens_that_are_no_key_of_the_row() -> None:
    task = MQAR(vocab=10, pairs=4)
    batch = task.sample(rows(8_000), 40)
    filler = batch.inputs[0][batch.targets[0] == IGNORE].view(8_000, -1)[:, 8:]
    # All four keys are in every row, so filler is 0 or a value.
    assert_law(filler, [1 / 6] + [0.0] * 4 + [1 / 6] * 5)
    compat = MQAR(vocab=10, pairs=4, peer_compat=True).sample(rows(8_000), 40)
    assert_uniform(compat.inputs[0][compat.targets[0] == IGNORE].view(8_000, -1)[:, 8:], 10)


def test_published_collisions_under_peer_compat() -> None:
    """93 % of zoology's rows at vocab 8192, length 512, 64 pairs hold a key unasked, 2.5 times on average."""
    unasked = {}
    for compat in (False, True):
        batch = MQAR(pairs=64, peer_compat=compat).sample(rows(1_000), 512)
        keys = batch.inputs[0, :, 0:128:2]
        is_key = torch.stack([torch.isin(x, k) for x, k in zip(batch.inputs[0, :, 128:], keys, strict=True)])
        unasked[compat] = is_key.sum(-1) - 64
    assert not unasked[False].any()
    assert_mean(unasked[True], 64 * 320 / 8192)
    assert abs((unasked[True] > 0).double().mean() - 0.93) < 0.03


def test_published_updates_that_change_nothing() -> None:
    """A share (1 − 1 / n) · 2 / vocab of zoology's updates: the wrong key's value is left out."""
    for compat in (False, True):
        batch = MQAR(vocab=20, pairs=4, updates=1, peer_compat=compat).sample(rows(20_000), 18)
        keys, values = batch.inputs[0, :, 0:8:2], batch.inputs[0, :, 1:8:2]
        old = values[keys == batch.inputs[0, :, 8:9]]
        same = (old == batch.inputs[0, :, 9]).double()
        if compat:
            assert_mean(same, 0.75 / 9)
        else:
            assert not same.any()


def test_pairs_of_a_mixture() -> None:
    task = MQAR(vocab=64, pairs=((16, 3), (32, 4), (32, 6), (32, 8), (64, 9)), filler="zero")
    for length, law in [(16, {3: 1.0}), (30, {3: 1.0}), (64, {9: 1.0}), (50, {4: 1 / 3, 6: 1 / 3, 8: 1 / 3})]:
        batch = task.sample(rows(6_000), length)
        asked = (batch.targets[0] != IGNORE).sum(-1)
        assert_law(asked, [law.get(n, 0.0) for n in range(int(asked.max()) + 1)])
        assert torch.equal((batch.inputs[0] == 0).sum(-1), length - 3 * asked)
    with pytest.raises(ValueError, match="length 14 is too short for 3 keys and 0 updates; use length >= 16"):
        task.check_length(14)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"filler": "noise"}, "filler is 'noise'; use 'random' or 'zero'"),
        ({"power": 2.5}, r"power is 2.5; it must lie in \[0, 2\]"),
        ({"vocab": 3}, r"vocab is 3; use 4 … 2\^21"),
        ({"pairs": ()}, "pairs is empty; give a number"),
        ({"pairs": 0}, "pairs is 0 and vocab 8192 has 4095 keys; use 1 … 4095"),
        ({"pairs": 9, "vocab": 19}, "pairs is 9 and vocab 19 has 8 keys; use 1 … 8, or vocab >= 20"),
        ({"updates": 5}, "updates is 5; use 0 … 4, the keys of a row"),
        ({"pairs": ((64, 4), (64, 17))}, "pairs has 17 keys from length 64 on.*use length >= 68 or fewer"),
    ],
)
def test_settings_that_cannot_work(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^mqar: {sentence}"):
        MQAR(**fields)


def test_an_odd_length() -> None:
    with pytest.raises(ValueError, match=r"length 65 is odd.*an even length >= 16"):
        MQAR().check_length(65)


@settings(deadline=None, max_examples=80)
@given(
    vocab=ints(2, 40),
    pairs=ints(0, 12),
    updates=ints(-1, 6),
    length=ints(0, 70),
    filler=st.sampled_from(["random", "zero"]),
    power=st.sampled_from([0.01, 0.0, 1.0, 2.0]),
    start=ints(0, 2**62),
)
def test_any_sizes(
    vocab: int, pairs: int, updates: int, length: int, filler: Any, power: float, start: int
) -> None:
    fits = 1 <= pairs <= vocab // 2 - 1 and vocab >= 4 and 0 <= updates <= pairs
    fits = fits and length >= 4 * pairs + 2 * updates and length % 2 == 0
    fields = {"vocab": vocab, "pairs": pairs, "updates": updates, "filler": filler, "power": power}
    refused = recall.refusal(lambda: MQAR(**fields), length)
    assert bool(refused) != fits, refused
    if refused:
        assert re.match(r"mqar: .* use .*\d", refused)
        return
    task = MQAR(**fields)
    batch = task.sample(Rows.span([7], "train", start, 4), length)
    for i in range(4):
        targets, distance, _ = recall.mqar(task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.distance is not None
        assert batch.distance[0, i].tolist() == distance
