"""On a GPU: the same bits as on a CPU, no waiting for the host, little memory."""

from __future__ import annotations

import pytest
import torch

from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.rows import Rows
from tests.tasks.cases import CASES, Case
from tests.tasks.test_contract import assert_equal, tensors
from tests.tasks.test_rows import DRAWS

pytestmark = pytest.mark.gpu
SEEDS = (3, 2**32 - 1, 0)


@pytest.mark.parametrize("name", [*DRAWS, "permutation"])
def test_draws_are_those_of_the_cpu(name: str) -> None:
    draw = {**DRAWS, "permutation": lambda rows, n: rows.permutation(6, n)}[name]
    for n in (1, 130):
        expected = draw(Rows.span(SEEDS, "test", 2**33, 70), n)
        found = draw(Rows.span(SEEDS, "test", 2**33, 70, "cuda"), n)
        assert found.device.type == "cuda"
        assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_those_of_the_cpu(case: Case) -> None:
    expected = case.task.sample(Rows.span(SEEDS, "train", 5, 130), case.length)
    found = case.task.sample(Rows.span(SEEDS, "train", 5, 130, "cuda"), case.length)
    assert {value.device.type for value in tensors(found).values()} == {"cuda"}
    assert_equal(type(found)(**{name: value.cpu() for name, value in tensors(found).items()}), expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_captured_graph_draws_the_rows_it_is_told(case: Case) -> None:
    seeds, index = torch.tensor(SEEDS, device="cuda"), torch.arange(16, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        case.task.sample(Rows(seeds, "train", index), case.length)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = case.task.sample(Rows(seeds, "train", index), case.length)
    index += 1000
    graph.replay()
    assert_equal(batch, case.task.sample(Rows(seeds, "train", index), case.length))


def cheapest(name: str) -> Case:
    """The shortest case of a task of 16 tokens or more: short ones compile sooner."""
    return min(
        (case for case in CASES if case.name == name and case.length >= 16), key=lambda case: case.length
    )


# Inductor of torch 2.11 itself uses what torch.jit has deprecated.
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisy_recall", "parity", "group_word", "selective_copying"])
def test_a_compiled_task_draws_the_same_rows(name: str) -> None:
    case = cheapest(name)
    rows = Rows.span(SEEDS, "train", 5, 32, "cuda")
    compiled = torch.compile(case.task.sample, fullgraph=True, dynamic=False)
    assert_equal(compiled(rows, case.length), case.task.sample(rows, case.length))


def test_memory_is_a_small_multiple_of_the_batch() -> None:
    rows = Rows.span(range(8), "train", 0, 64, "cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    batch = NoisyRecall(vocab=96).sample(rows, 1024)
    size = sum(value.numel() * 8 for value in tensors(batch).values())
    assert torch.cuda.max_memory_allocated() - before < 8 * size
