"""Rows as a person reads them."""

from __future__ import annotations

import pytest

from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows
from statelab.tasks.show import WIDTH, show
from statelab.tasks.task import Task
from tests.tasks.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_token_is_shown_once_within_the_width(case: Case) -> None:
    text = show(case.task, case.length, rows=3, seed=4)
    assert max(map(len, text.splitlines())) <= WIDTH
    words = [word for line in text.splitlines() if line.startswith("    in ") for word in line.split()[1:]]
    batch = case.task.sample(Rows.span([4], "train", 0, 3), case.length)
    assert words == [case.task.describe(token) for token in batch.inputs.flatten().tolist()]
    marks = [word for line in text.splitlines() if line.startswith("    out ") for word in line.split()[1:]]
    assert len(marks) == len(words)


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        (
            NoisyRecall(vocab=23, noise_vocab=4, multi_query=False),
            [
                "NoisyRecall(vocab=23, noise_vocab=4, multi_query=False) at 8",
                "    tokens  key k0…k8 = 0…8, value v0…v8 = 9…17, noise n0…n3 = 18…21, copy => = 22",
                "    scored  2 of 16 positions below; a guess among 9 answers is right 11.1 % of the time",
                "    loss    on the next token at every position",
            ],
        ),
        (
            Parity(),
            [
                "Parity() at 8",
                "    tokens  pad _ = 0, bit 0…1 = 1…2",
                "    scored  2 of 16 positions below; a guess among 2 answers is right 50 % of the time",
                "    loss    on what is scored",
            ],
        ),
    ],
    ids=["noisy_recall", "parity"],
)
def test_the_legend(task: Task, lines: list[str]) -> None:
    assert show(task, 8, rows=2).splitlines()[:4] == lines


def test_a_length_that_cannot_work() -> None:
    with pytest.raises(ValueError, match="length 7"):
        show(NoisyRecall(), 7)
