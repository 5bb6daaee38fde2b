"""Group word problems: rows printed by the word-problem generators, the law of the elements, refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.group_word import GroupWord
from statelab.tasks.groups import order
from statelab.tasks.rows import Rows
from tests.tasks import algebra
from tests.tasks.statistics import assert_law, assert_uniform

ROWS = Rows.span([5], "train", 0, 20_000)

PUBLISHED = {
    "word-problem, first": ("S3", [5, 5, 4, 5, 1, 4, 5, 4], [5, 0, 4, 2, 3, 0, 5, 1]),
    "word-problem, second": ("S3", [2, 3, 5, 3, 1, 4, 3, 1], [2, 1, 3, 4, 5, 1, 5, 4]),
    # DeltaProduct's variants delay the answers, or stretch the elements; what is composed is the same.
    "S3_2_tokens": ("S3", [2, 3, 5, 3], [2, 1, 3, 4]),
    "S3_3_tokens_s_token": ("S3", [2, 3], [2, 1]),
    "S5_only_swaps_hard": ("S5", [25, 112], [25, 89]),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_printed_by_the_published_generators(name: str) -> None:
    group, word, answers = PUBLISHED[name]
    batch = GroupWord(group=group).lay_out(torch.tensor([[word]]))
    assert batch.inputs.tolist() == [[word]]
    assert batch.targets.tolist() == [[answers]] == batch.loss_targets.tolist()
    assert batch.length.tolist() == [[len(word)]]


def test_peer_compat_puts_bos_in_front_of_both() -> None:
    word, answers = PUBLISHED["word-problem, first"][1:]
    task = GroupWord(peer_compat=True)
    batch = task.lay_out(torch.tensor([[word]]))
    assert batch.inputs.tolist() == [[[7, *word]]]
    assert batch.targets.tolist() == [[[7, *answers]]]
    assert batch.length.tolist() == [[9]]
    assert task.vocab_size == 13
    assert [task.describe(i) for i in range(6, 13)] == ["PAD", "BOS", "UNK", "EOS", "SEP", "CLS", "MASK"]
    assert task.num_answers == 6


@pytest.mark.parametrize("group", ["S3", "A4", "D5", "Z2xZ3"])
def test_elements_are_uniform_and_independent(group: str) -> None:
    word = GroupWord(group=group).sample(ROWS, 9).inputs
    G = order(group)
    for t in (0, 4, 8):
        assert_uniform(word[..., t], G)
        assert_uniform(word[..., t] * G + word[..., (t + 1) % 9], G * G)


@pytest.mark.parametrize("t", [0, 3, 40])
def test_answers_are_uniform(t: int) -> None:
    assert_uniform(GroupWord(group="A5").sample(ROWS, 41).targets[..., t], 60)


def test_swaps_are_uniform_among_themselves_and_reach_all() -> None:
    batch = GroupWord(group="S4", generators="swaps").sample(ROWS, 30)
    members = algebra.points("S4")
    moved = [sum(a != b for a, b in enumerate(p)) for p in members]
    assert_law(batch.inputs[..., ::7], [1 / 7 if count <= 2 else 0.0 for count in moved])
    assert_uniform(batch.targets[..., -1], 24)


@pytest.mark.parametrize(("task", "length"), [(GroupWord(), 128), (GroupWord(group="S5"), 40)], ids=str)
def test_no_answer_in_100_000_rows_is_wrong(task: GroupWord, length: int) -> None:
    """Composing the permutations themselves, all rows at a time, rather than looking products up."""
    batch = task.sample(Rows.span([8], "validation", 0, 100_000), length)
    members = torch.tensor(algebra.points(task.group))
    total = members[batch.inputs[0, :, 0]]
    for t in range(length):
        if t:
            total = total.gather(-1, members[batch.inputs[0, :, t]])
        assert torch.equal(members[batch.targets[0, :, t]], total)


@settings(deadline=None, max_examples=40)
@given(
    group=st.sampled_from(["S2", "S3", "S4", "A3", "A4", "Z2", "Z9", "D3", "D4", "Z3xS3", "A4xZ5"]),
    compat=st.booleans(),
    swapped=st.booleans(),
    length=st.integers(1, 70),
    start=st.integers(0, 2**62),
)
def test_any_size(group: str, compat: bool, swapped: bool, length: int, start: int) -> None:
    swapped = swapped and group in ("S2", "S3", "S4")
    task = GroupWord(group=group, generators="swaps" if swapped else "all", peer_compat=compat)
    batch = task.sample(Rows.span([1], "test", start, 4), length)
    for i in range(4):
        row = batch.inputs[0, i].tolist()
        assert batch.targets[0, i].tolist() == algebra.group_word(task, row)[0]
        assert len(row) == length + compat == batch.length[0, i]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": "M11"}, "^group_word: unknown group 'M11'; use S, A, Z or D and a number"),
        ({"group": "S7"}, "^group_word: group 'S7' is too large for a table; .* at most 1024 elements"),
        ({"generators": "cycles"}, "generators is 'cycles'; use 'all' or 'swaps'"),
        ({"generators": "swaps", "group": "A5"}, "group 'A5' has no swaps; use generators='all' or a symm"),
        ({"generators": "swaps", "group": "S3xS3"}, "group 'S3xS3' has no swaps"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GroupWord(**options)  # type: ignore[arg-type]


def test_a_length_of_nothing() -> None:
    with pytest.raises(ValueError, match="group_word: length 0 holds no element; use length >= 1"):
        GroupWord().sample(Rows.span([0], "train", 0, 1), 0)
