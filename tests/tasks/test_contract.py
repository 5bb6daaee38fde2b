"""What every registered task keeps, over its defaults and odd settings."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args, get_type_hints

import pytest
import torch
from torch import Tensor

from statelab.models.settings import Metric
from statelab.tasks import TASKS
from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task
from tests.tasks.cases import CASES, Case, legal
from tests.tasks.oracles import ORACLES

SEEDS = (3, 2**32 - 1, 0)
each_case = pytest.mark.parametrize("case", CASES, ids=str)


def tensors(batch: Batch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if value is not None}


def sample(case: Case, rows: Rows) -> Batch:
    return case.task.sample(rows, case.length)


def assert_equal(batch: Batch, other: Batch) -> None:
    assert tensors(batch).keys() == tensors(other).keys()
    for name, value in tensors(batch).items():
        assert torch.equal(value, tensors(other)[name]), name


def take(batch: Batch, lanes: list[int], rows: list[int]) -> Batch:
    return Batch(**{name: value[lanes][:, rows] for name, value in tensors(batch).items()})


def test_registry_is_sorted_and_tested() -> None:
    assert list(TASKS) == sorted(TASKS)
    assert set(ORACLES) == {case.name for case in CASES} == set(TASKS)


@each_case
def test_rows_do_not_depend_on_the_batch(case: Case) -> None:
    whole = sample(case, Rows.span(SEEDS, "train", 0, 64))
    for size in (1, 7, 64):
        for start in range(0, 64, size):
            part = sample(case, Rows.span(SEEDS, "train", start, min(size, 64 - start)))
            assert_equal(part, take(whole, [0, 1, 2], list(range(start, min(start + size, 64)))))


@each_case
def test_any_rows_and_any_order_of_lanes(case: Case) -> None:
    whole = sample(case, Rows.span(SEEDS, "validation", 0, 64))
    rows, lanes = [41, 5, 63, 5], [2, 0, 2, 1]
    seeds = torch.tensor(SEEDS)[lanes]
    assert_equal(sample(case, Rows(seeds, "validation", torch.tensor(rows))), take(whole, lanes, rows))


@each_case
def test_every_seed_split_and_row_is_its_own(case: Case) -> None:
    drawn = [
        sample(case, Rows.span([1, 2], split, 0, 64)).inputs for split in ("train", "validation", "test")
    ]
    drawn.append(sample(case, Rows.span([1, 2], "train", 2**32, 64)).inputs)
    streams = {tuple(lane.flatten().tolist()) for inputs in drawn for lane in inputs}
    assert len(streams) == 8


@each_case
def test_answers_are_those_of_the_slow_oracle(case: Case) -> None:
    batch = sample(case, Rows.span(SEEDS, "test", 2**40, 40))
    for lane in range(len(SEEDS)):
        for i in range(40):
            targets, distance, length = ORACLES[case.name](case.task, batch.inputs[lane, i].tolist())
            assert batch.targets[lane, i].tolist() == targets
            assert batch.length[lane, i].item() == length
            if distance is None:
                assert batch.distance is None
            else:
                assert batch.distance is not None
                assert batch.distance[lane, i].tolist() == distance


@each_case
def test_shapes_types_and_ranges(case: Case) -> None:
    batch = sample(case, Rows.span(SEEDS, "train", 7, 33))
    *head, T = batch.inputs.shape
    assert head == [len(SEEDS), 33]
    assert abs(T - case.length) <= 1
    for name, value in tensors(batch).items():
        assert value.dtype == torch.int64, name
        assert value.shape == ((*head,) if name == "length" else (*head, T)), name
        assert value.is_contiguous(), name
    assert in_vocabulary(case.task, batch.inputs)
    for targets in (batch.targets, batch.loss_targets):
        assert in_vocabulary(case.task, targets[targets != IGNORE])
    scored = batch.targets != IGNORE
    assert scored.any(-1).all(), "a row asks for nothing"
    assert torch.equal(batch.loss_targets[scored], batch.targets[scored])
    if batch.distance is not None:
        assert torch.equal(batch.distance > 0, scored)
        assert torch.equal(batch.distance == IGNORE, ~scored)


@each_case
def test_metrics_are_of_what_batches_carry(case: Case) -> None:
    batch = sample(case, Rows.span(SEEDS, "test", 0, 4))
    assert set(case.task.metrics) <= set(get_args(Metric))
    assert len(set(case.task.metrics)) == len(case.task.metrics)
    # A study may ask for these two only where the task does, so a task that can be measured so says it.
    assert ("by_distance" in case.task.metrics) == (batch.distance is not None)
    assert ("exact_answers" in case.task.metrics) == (batch.group is not None)
    if batch.group is not None:
        assert torch.equal(batch.group >= 0, batch.targets != IGNORE)
        assert torch.equal(batch.group == IGNORE, batch.targets == IGNORE)


def in_vocabulary(task: Task, ids: Tensor) -> bool:
    return bool(((ids >= 0) & (ids < task.vocab_size)).all())


@each_case
def test_loss_sees_what_loss_on_says(case: Case) -> None:
    batch = sample(case, Rows.span(SEEDS, "train", 0, 16))
    if getattr(case.task, "loss_on", "scored") == "scored":
        assert torch.equal(batch.loss_targets, batch.targets)
    else:
        assert torch.equal(batch.loss_targets[..., :-1], batch.inputs[..., 1:])


@each_case
def test_tokens_have_kinds_and_names(case: Case) -> None:
    task = case.task
    assert [token for ids in task.kinds.values() for token in ids] == list(range(task.vocab_size))
    names = [task.describe(token) for token in range(task.vocab_size)]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set(" ·\n") for name in names)
    assert 2 <= task.num_answers <= task.vocab_size


@each_case
def test_a_length_is_refused_with_its_bound_or_works(case: Case) -> None:
    seen = set()
    for length in range(-2, 24):
        seen.add(legal(case.task, length))
        if legal(case.task, length):
            sample(case._replace(length=length), Rows.span([0], "train", 0, 3))
            continue
        with pytest.raises(ValueError, match=rf"^{case.name}: length {length} .*length >= \d+"):
            case.task.check_length(length)
        with pytest.raises(ValueError, match="length"):
            sample(case._replace(length=length), Rows.span([0], "train", 0, 3))
    assert False in seen


@pytest.mark.parametrize("name", TASKS)
def test_fields_are_described_and_frozen(name: str) -> None:
    hints = get_type_hints(TASKS[name], include_extras=True)
    task = TASKS[name]()
    for field in fields(task):
        assert isinstance(hints[field.name].__metadata__[0], str)
        assert field.kw_only
        with pytest.raises(FrozenInstanceError):
            setattr(task, field.name, getattr(task, field.name))
    assert hash(task) == hash(TASKS[name]())
