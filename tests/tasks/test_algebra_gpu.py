"""The algebraic tasks on a GPU at their largest published sizes: the CPU's rows, in little memory."""

from __future__ import annotations

import pytest
import torch

from statelab.tasks.bracket_arithmetic import BracketArithmetic
from statelab.tasks.cycle_navigation import CycleNavigation
from statelab.tasks.even_pairs import EvenPairs
from statelab.tasks.group_word import GroupWord
from statelab.tasks.modular_arithmetic import ModularArithmetic
from statelab.tasks.rows import Rows
from tests.tasks.cases import Case
from tests.tasks.test_contract import assert_equal, tensors

pytestmark = pytest.mark.gpu

LARGEST = [
    Case("bracket_arithmetic", BracketArithmetic(multiply=True, min_length=40), 256),
    Case("cycle_navigation", CycleNavigation(min_length=39), 255),
    Case("even_pairs", EvenPairs(min_length=39), 255),
    Case("group_word", GroupWord(), 512),
    Case("group_word", GroupWord(group="S5", peer_compat=True), 512),
    Case("modular_arithmetic", ModularArithmetic(min_length=40), 256),
]


@pytest.mark.parametrize("case", LARGEST, ids=str)
def test_rows_and_memory(case: Case) -> None:
    expected = case.task.sample(Rows.span(range(8), "train", 0, 64), case.length)
    rows = Rows.span(range(8), "train", 0, 64, "cuda")
    case.task.sample(rows, case.length)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = case.task.sample(rows, case.length)
    size = sum(value.numel() * 8 for value in tensors(found).values())
    assert torch.cuda.max_memory_allocated() - before < 8 * size
    assert_equal(type(found)(**{name: value.cpu() for name, value in tensors(found).items()}), expected)
