"""The recall tasks on a GPU: settings whose rows no oracle can read, and memory at the largest published sizes."""

from __future__ import annotations

import pytest
import torch

from statelab.tasks.fuzzy_recall import FuzzyRecall
from statelab.tasks.mqar import MQAR
from statelab.tasks.needle import Needle
from statelab.tasks.rows import Rows
from statelab.tasks.selective_copying import SelectiveCopying
from statelab.tasks.task import Task
from statelab.tasks.weighted import exponential, successive_places
from tests.tasks.test_contract import assert_equal, tensors

pytestmark = pytest.mark.gpu
SEEDS = (3, 2**32 - 1, 0)


@pytest.mark.parametrize(
    ("task", "length"),
    [
        (MQAR(pairs=64, peer_compat=True), 512),
        (MQAR(vocab=64, pairs=20, updates=20, peer_compat=True), 200),
        (FuzzyRecall(peer_compat=True), 128),
        (FuzzyRecall(peer_compat=True, multi_query=False), 16),
        (Needle(variant="multikey_2", word_vocab=2, ruler_collisions=True), 300),
    ],
    ids=str,
)
def test_rows_are_those_of_the_cpu(task: Task, length: int) -> None:
    expected = task.sample(Rows.span(SEEDS, "test", 5, 130), length)
    found = task.sample(Rows.span(SEEDS, "test", 5, 130, "cuda"), length)
    assert_equal(type(found)(**{name: value.cpu() for name, value in tensors(found).items()}), expected)


def test_places_and_the_numbers_behind_them_are_those_of_the_cpu() -> None:
    words = Rows.span(SEEDS, "train", 0, 3000).words(0, 256)
    assert torch.equal(exponential(words.cuda()).cpu(), exponential(words))
    assert torch.equal(
        successive_places(words.cuda(), 256, -0.99).cpu(), successive_places(words, 256, -0.99)
    )


@pytest.mark.parametrize(
    ("task", "length"),
    [
        (MQAR(pairs=64), 512),
        (MQAR(pairs=256), 1024),
        (MQAR(pairs=4), 64),
        (MQAR(pairs=((256, 16), (256, 32), (256, 64))), 256),
        (FuzzyRecall(), 128),
        (SelectiveCopying(), 256),
        (SelectiveCopying(peer_compat=True), 256),
        (Needle(), 4096),
        (Needle(variant="single_2"), 4096),
        (Needle(variant="multikey_3"), 4096),
    ],
    ids=str,
)
def test_memory_is_a_small_multiple_of_the_batch(task: Task, length: int) -> None:
    rows = Rows.span(range(8), "train", 0, 64, "cuda")
    task.sample(rows, length)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    batch = task.sample(rows, length)
    size = sum(
        value.numel() * 8 for value in {id(value): value for value in tensors(batch).values()}.values()
    )
    assert torch.cuda.max_memory_allocated() - before < 8 * size
