"""Noisy recall: the law of its rows, against exact marginals and mad-lab's published statistics."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.rows import Rows
from tests.tasks.statistics import assert_law, assert_mean, assert_uniform


def sample(task: NoisyRecall, length: int, count: int) -> Batch:
    return task.sample(Rows.span([5], "train", 0, count), length)


def pairs(batch: Batch) -> tuple[Tensor, Tensor]:
    """First and second tokens of the slots before the last pair, each `[B, S]`, of multi-query rows."""
    return batch.inputs[0, :, :-1:2], batch.inputs[0, :, 1::2]


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.8, 1.0])
def test_which_slots_show_a_pair(noise: float) -> None:
    """At 4 pairs every pattern of the 3 slots can be counted, and rows that crash mad-lab are common."""
    task = NoisyRecall(vocab=12, noise_vocab=4, noise=noise)
    lead, _ = pairs(sample(task, 8, 20_000))
    law = [0.0] * 8
    for protected, noisy in product(range(4), product((0, 1), repeat=3)):
        chance = 0.25
        for bit in noisy:
            chance *= noise if bit else 1 - noise
        left = [i for i in range(3) if noisy[i] and i != protected]
        if len(left) < 3:
            law[sum(1 << i for i in left)] += chance
            continue
        for shown in range(3):
            law[7 - (1 << shown)] += chance / 3
    assert_law((lead >= 8).long() @ torch.tensor([1, 2, 4]), law)


def test_tokens_are_uniform_and_independent() -> None:
    task = NoisyRecall(vocab=14, noise_vocab=5, noise=0.5)
    first, second = pairs(sample(task, 40, 5_000))
    shown = first < 4
    assert_uniform(first[shown], 4)
    noise = (first - 9) * 5 + second - 9
    assert_uniform(noise[~shown], 25)
    # Of each row the first two neighbours that show different keys, whose values are independent.
    a, b = first[:, :-1], first[:, 1:]
    both = shown[:, :-1] & shown[:, 1:] & (a != b)
    row = both.any(-1).nonzero()[:, 0]
    at = both.long().argmax(-1)[row]
    assert_uniform((second[row, at] - 4) * 5 + second[row, at + 1] - 4, 25)


def test_the_last_key_is_uniform_among_those_shown() -> None:
    task = NoisyRecall(vocab=12, noise_vocab=4, noise=0.8)
    batch = sample(task, 40, 20_000)
    first, _ = pairs(batch)
    seen = (first[..., None] == torch.arange(4)).any(1)
    asked = batch.inputs[0, :, -1:]
    for different in (2, 3, 4):
        rows = seen.sum(-1) == different
        place = (seen.cumsum(-1) - 1).gather(-1, asked)[:, 0]
        assert_uniform(place[rows], different)
    assert seen.gather(-1, asked).all()


PUBLISHED = [
    # vocab, length, pairs before the last, scored positions, different keys shown; mad-lab, noise 0.8
    (80, 512, 52, 27, 25.7),
    (80, 768, 78, 49, 29),
    (80, 1024, 103, 73, 30.7),
    (96, 768, 78, 44, 34.3),
    (96, 1024, 103, 67, 37.1),
]


@pytest.mark.parametrize(("vocab", "length", "shown", "scored", "keys"), PUBLISHED)
def test_published_statistics(vocab: int, length: int, shown: float, scored: float, keys: float) -> None:
    task = NoisyRecall(vocab=vocab)
    batch = sample(task, length, 1_500)
    first, _ = pairs(batch)
    number = len(task.kinds["key"])
    is_key = first < number
    different = (first.where(is_key, number)[..., None] == torch.arange(number)).any(1).sum(-1)
    asked = (batch.targets[0] != IGNORE).sum(-1)
    # mad-lab's numbers are rounded means over fewer rows: a standard error of about 0.3 is theirs.
    assert abs(is_key.sum(-1).double().mean() - shown) < 1
    assert abs(asked.double().mean() - scored) < 1
    assert abs(different.double().mean() - keys) < 0.3
    slots = length // 2 - 1
    assert_mean(is_key.sum(-1), slots * 0.2 + 0.8 * slots / (slots + 1))
    assert torch.equal(asked, is_key.sum(-1) + 1 - different)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noise": 1.2}, r"noise is 1.2; it is a chance, in \[0, 1\]"),
        ({"noise_vocab": 0}, "noise_vocab is 0; use 1 or more"),
        ({"noise_vocab": -1, "noise": 0.0}, "noise_vocab is -1"),
        ({"vocab": 18}, "vocab 18 leaves no key and two values beside 16 tokens of noise; use vocab >= 19"),
        ({"vocab": 19, "multi_query": False}, "noise and the copy token; use vocab >= 20"),
        ({"loss_on": "some"}, "loss_on is 'some'; use 'all' or 'scored'"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NoisyRecall(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [2, 7])
def test_lengths_that_cannot_work(length: int) -> None:
    with pytest.raises(ValueError, match=f"length {length} .* even length >= 4"):
        NoisyRecall().check_length(length)
