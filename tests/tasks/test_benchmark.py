"""The benchmark of tasks: its sizes, its tables, and that it leaves things as they were."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

from statelab.tasks import TASKS, benchmark
from statelab.tasks.batch import Batch
from statelab.tasks.benchmark import WIDTH, fastest, table
from statelab.tasks.even_pairs import EvenPairs
from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.parity import Parity
from statelab.tasks.published_sizes import SIZES, Size
from statelab.tasks.rows import Rows

SMALL = (
    Size(task=EvenPairs(), length=8),
    Size(task=NoisyRecall(vocab=96), length=16, published=1e-3, target=1e-3, step_target=1e9),
    Size(task=Parity(modulus=5), length=8, published=3, target=1e12, step_target=1e-9),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "SIZES", SMALL)
    monkeypatch.setattr(benchmark, "STEPS", 2)
    monkeypatch.setattr(benchmark, "_WARM_BLOCK", 1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def test_every_task_is_measured_at_sizes_it_can_have() -> None:
    assert {type(size.task) for size in SIZES} == set(TASKS.values())
    names = list(TASKS.values())
    places = [names.index(type(size.task)) for size in SIZES]
    assert places == sorted(places)
    for size in SIZES:
        size.task.check_length(size.length)
        assert size.target is None or size.published is not None


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()[2 : 3 + len(SMALL)]]


@pytest.mark.usefixtures("small")
def test_the_table_of_a_core() -> None:
    text = table(batch=4, seconds=1e-6)
    assert max(map(len, text.splitlines())) <= WIDTH
    head, even_pairs, noisy, parity = cells(text)
    assert head == ["task", "setting", "length", "rows/s", "published", "ratio", "target"]
    assert even_pairs[0] == "even_pairs"
    assert noisy[:2] == ["noisy_recall", "vocab=96"]
    assert noisy[-1] == "met"
    assert parity[:3] == ["parity", "modulus=5", "8"]
    assert parity[-1] == "missed"
    rate, published, ratio = (float(cell.replace(",", "")) for cell in parity[3:6])
    assert published == 3
    assert ratio == pytest.approx(rate / 3, abs=1)


@pytest.mark.usefixtures("small")
def test_the_table_of_a_population() -> None:
    text = benchmark._gpu_table(torch.device("cpu"), 1e-6)
    assert max(map(len, text.splitlines())) <= WIDTH
    head, _, noisy, parity = cells(text)
    assert head == ["task", "setting", "length", "ms/step", "target"]
    assert float(noisy[3]) > 0
    assert (noisy[-1], parity[-1]) == ("met", "missed")


@pytest.mark.usefixtures("small", "two_threads")
def test_one_thread_and_then_as_many_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    sample = EvenPairs.sample

    def counting(task: EvenPairs, rows: Rows, length: int) -> Batch:
        seen.append(torch.get_num_threads())
        return sample(task, rows, length)

    monkeypatch.setattr(EvenPairs, "sample", counting)
    table(batch=2, seconds=1e-6)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("small", "two_threads")
def test_threads_come_back_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no rows")

    monkeypatch.setattr(EvenPairs, "sample", fail)
    with pytest.raises(RuntimeError, match="no rows"):
        table(batch=2, seconds=1e-6)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("small")
def test_a_size_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(EvenPairs, "sample", fail)
    assert cells(benchmark._gpu_table(torch.device("cpu"), 1e-6))[1][-2:] == ["no memory", "2.0"]


def test_the_fastest_call_counts_after_the_first() -> None:
    now = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    calls = []
    assert fastest(lambda: calls.append(1), 1e-9, lambda: next(now)) == 2.0
    assert len(calls) == 4


@pytest.mark.parametrize(("batch", "seconds"), [(0, 1.0), (4, 0.0), (4, float("nan"))])
def test_settings_that_cannot_work(batch: int, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"use batch >= 1"):
        table(batch, seconds)


@pytest.mark.gpu
@pytest.mark.usefixtures("small")
def test_a_gpu_is_timed() -> None:
    assert torch.cuda.get_device_name() in table(seconds=1e-3, device="cuda")
