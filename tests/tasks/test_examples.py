"""The worked instances in the docstrings, and those of the generators that the tasks reproduce."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

import pytest
import torch

from statelab.tasks import TASKS
from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.parity import last, running
from statelab.tasks.show import show
from statelab.tasks.task import Task
from tests.tasks.oracles import ORACLES

NOTHING = "·"


class Instance(NamedTuple):
    """One instance of a docstring: the setting as written, and the words of its lines."""

    name: str
    setting: str
    length: int
    lines: dict[str, list[str]]

    def __str__(self) -> str:
        return self.setting

    @property
    def task(self) -> Task:
        call = ast.parse(self.setting, mode="eval").body
        assert isinstance(call, ast.Call)
        settings: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return TASKS[self.name](**settings)


def instances(name: str) -> list[Instance]:
    cls = TASKS[name]
    pattern = rf"^ +({cls.__name__}\(.*\)) at (\d+)\n((?: +(?:in|out|ago) .*\n)+)"
    found = re.findall(pattern, cls.__doc__ or "", re.MULTILINE)
    return [
        Instance(
            name, setting, int(length), {line.split()[0]: line.split()[1:] for line in block.splitlines()}
        )
        for setting, length, block in found
    ]


INSTANCES = [instance for name in TASKS for instance in instances(name)]
each_instance = pytest.mark.parametrize("instance", INSTANCES, ids=str)


@pytest.mark.parametrize("name", TASKS)
def test_a_docstring_shows_two_instances(name: str) -> None:
    assert len(instances(name)) == 2


@each_instance
def test_a_docstrings_answers_are_right(instance: Instance) -> None:
    task = instance.task
    ids = {task.describe(token): token for token in range(task.vocab_size)}
    row = [ids[word] for word in instance.lines["in"]]
    targets, distance, _ = ORACLES[instance.name](task, row)
    assert [IGNORE if word == NOTHING else ids[word] for word in instance.lines["out"]] == targets
    if distance is not None:
        assert [IGNORE if word == NOTHING else int(word) for word in instance.lines["ago"]] == distance


@each_instance
def test_a_docstring_shows_what_show_shows(instance: Instance) -> None:
    head, _, row = show(instance.task, instance.length, rows=1).partition("\n\n")
    assert head.splitlines()[0] == f"{instance.setting} at {instance.length}"
    assert {line.split()[0]: line.split()[1:] for line in row.splitlines()} == instance.lines


def lay_out(task: NoisyRecall, row: list[int]) -> Batch:
    """The batch made of the draws behind a published row (with its last answer, which is not an input)."""
    keys = len(task.kinds["key"])
    # Keys that the row does not show may have any value.
    table = [task.kinds["value"].start] * keys
    pairs = [(row[t], row[t + 1]) for t in range(0, len(row) - 2, 2)]
    pairs = pairs if task.multi_query else pairs[: (len(row) - 3) // 2]
    for first, second in [*pairs, (row[-2], row[-1])]:
        if first < keys:
            table[first] = second
    lead, follow = zip(*pairs, strict=True)
    draws = [torch.tensor([[values]]) for values in (lead, follow, table, row[-2:-1])]
    return task.lay_out(*draws)


MAD = NoisyRecall(vocab=16, noise_vocab=4, noise=0.4)
PUBLISHED = {
    "two keys asked again": (
        MAD,
        [14, 13, 12, 12, 4, 9, 3, 9, 3, 9, 4, 9, 0, 8, 0, 8],
        {8: (9, 2), 10: (9, 6), 14: (8, 2)},
    ),
    "no noise in the row": (
        MAD,
        [3, 6, 0, 7, 1, 7, 4, 7, 2, 6, 0, 7, 4, 7, 0, 7],
        {10: (7, 8), 12: (7, 6), 14: (7, 4)},
    ),
    "one query behind a copy token": (
        NoisyRecall(vocab=16, noise_vocab=4, noise=0.4, multi_query=False),
        [13, 12, 11, 11, 4, 8, 3, 8, 2, 6, 14, 12, 4, 8, 15, 3, 8],
        {15: (8, 9)},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_printed_by_mad_lab(name: str) -> None:
    task, row, asked = PUBLISHED[name]
    batch = lay_out(task, row)
    T = len(row) - 1
    assert batch.inputs[0, 0].tolist() == row[:-1]
    assert batch.loss_targets[0, 0].tolist() == row[1:]
    assert batch.targets[0, 0].tolist() == [asked[t][0] if t in asked else IGNORE for t in range(T)]
    assert batch.distance is not None
    assert batch.distance[0, 0].tolist() == [asked[t][1] if t in asked else IGNORE for t in range(T)]
    assert batch.length.tolist() == [[T]]


@pytest.mark.parametrize(
    ("bits", "answer"), [([1, 1, 1, 0, 0, 0, 0], 2), ([0, 1, 1, 1], 2), ([1, 1], 1)], ids=str
)
def test_parity_rows_printed_by_xlstm(bits: list[int], answer: int) -> None:
    context, size = 11, len(bits)
    # What lies behind the size was drawn and is not shown.
    batch = last(torch.tensor([[bits + [1] * (context - size)]]), torch.tensor([[size]]))
    assert batch.inputs[0, 0].tolist() == [bit + 1 for bit in bits] + [0] * (context - size)
    assert batch.targets[0, 0].tolist() == [answer if t == size - 1 else IGNORE for t in range(context)]
    assert batch.length.tolist() == [[size]]


def test_cumulative_parity_row_printed_by_zoology() -> None:
    batch = running(torch.tensor([[[0, 1, 1, 0, 1, 1, 1]]]))
    assert batch.inputs.tolist() == [[[0, 1, 1, 0, 1, 1, 1]]]
    assert batch.targets.tolist() == [[[0, 1, 0, 0, 1, 0, 1]]]
    assert batch.length.tolist() == [[7]]
