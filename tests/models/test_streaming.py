"""Very long sequences: the stream is the task's own, memory does not grow, and accuracy falls where it should."""

from __future__ import annotations

import resource
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.streaming import Running, pieces, stream_accuracy
from statelab.tasks.cycle_navigation import CycleNavigation
from statelab.tasks.group_word import GroupWord
from statelab.tasks.groups import cayley_table
from statelab.tasks.mqar import MQAR
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task

PARITY = Parity(answer="running")


class Oracle(nn.Module):
    """Answers parity from its state, right up to position `until`; checks that no older state is kept."""

    state_size = 2

    def __init__(self, until: int = 1 << 60) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1)
        self.until = until
        self.longest = 0
        self.before: weakref.ref[Tensor] | None = None

    def forward(self, bits_BT: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        carried_B2 = torch.zeros(len(bits_BT), 2, dtype=torch.int64) if state is None else state
        if self.before is not None:
            assert self.before() is None, "the state before last is still held"
        self.before = None if state is None else weakref.ref(state)
        self.longest = max(self.longest, bits_BT.shape[1])
        parity_BT = (carried_B2[:, :1] + bits_BT.cumsum(1)) % 2
        seen_BT = carried_B2[:, 1:] + torch.arange(1, bits_BT.shape[1] + 1)
        answer_BT = torch.where(seen_BT <= self.until, parity_BT, 1 - parity_BT)
        return nn.functional.one_hot(answer_BT, 2), torch.stack((parity_BT[:, -1], seen_BT[:, -1]), dim=1)


def join(task: Task, total: int, piece: int, streams: int = 2) -> tuple[np.ndarray[Any, Any], ...]:
    parts = list(pieces(task, 3, total, piece, streams))
    assert [part[0].shape[1] for part in parts[:-1]] == [piece] * (len(parts) - 1)
    return tuple(torch.cat(tensors, dim=1).numpy() for tensors in zip(*parts, strict=True))


@pytest.mark.parametrize("piece", [1, 7, 50, 64])
def test_a_stream_of_parity_is_one_row(piece: int) -> None:
    inputs, targets = join(PARITY, 50, piece)
    assert inputs.shape == (2, 50)
    np.testing.assert_array_equal(targets, np.cumsum(inputs, axis=1) % 2)
    assert 0.3 < inputs.mean() < 0.7


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_stream_of_group_elements_is_one_row(piece: int) -> None:
    task = GroupWord(group="S4")
    inputs, targets = join(task, 50, piece)
    table = np.array(cayley_table("S4"))
    for row in range(2):
        product = 0
        for t in range(50):
            product = table[product, inputs[row, t]]
            assert targets[row, t] == product


def test_a_stream_of_moves_is_one_row() -> None:
    task = CycleNavigation(answer="running", cycle=5)
    inputs, targets = join(task, 50, 9)
    steps = np.where(inputs <= 2, inputs - 1, 2 - inputs)
    np.testing.assert_array_equal(targets - 4, np.cumsum(steps, axis=1) % 5)


def test_streams_and_pieces_are_different_rows() -> None:
    inputs, _ = join(PARITY, 128, 32, streams=3)
    assert len({row.tobytes() for stream in inputs for row in np.split(stream, 4)}) == 12


def test_a_million_tokens_without_a_past_kept() -> None:
    oracle = Oracle(until=100_000)
    decades = stream_accuracy(oracle, PARITY, total=1_000_000, piece=50_000, streams=2)  # type: ignore[arg-type]
    assert [(d.first, d.last) for d in decades] == [
        (1, 10),
        (11, 100),
        (101, 1_000),
        (1_001, 10_000),
        (10_001, 100_000),
        (100_001, 1_000_000),
    ]
    assert [d.accuracy for d in decades] == [1, 1, 1, 1, 1, 0]
    assert oracle.longest == 50_000


@pytest.mark.parametrize(("total", "lasts"), [(1, [1]), (10, [10]), (11, [10, 11]), (250, [10, 100, 250])])
def test_the_last_decade_ends_with_the_stream(total: int, lasts: list[int]) -> None:
    decades = stream_accuracy(Oracle(until=50), PARITY, total=total, piece=7)  # type: ignore[arg-type]
    assert [d.last for d in decades] == lasts
    right = {1: [1], 10: [1], 11: [1, 1], 250: [1, 40 / 90, 0]}
    assert [d.accuracy for d in decades] == pytest.approx(right[total])


def test_a_models_own_accuracy_is_that_of_one_long_row() -> None:
    torch.manual_seed(0)
    layers = (LayerConfig(mixer="gru"), LayerConfig(mixer="gated_delta"))
    model = Backbone(ModelConfig(layers=layers, width=8), vocab_size=2).double()
    inputs, targets = join(PARITY, 230, 33)
    right = (model(torch.from_numpy(inputs))[0].argmax(-1).numpy() == targets).astype(float)
    decades = stream_accuracy(model, PARITY, seed=3, total=230, piece=33, streams=2)
    wanted = [right[:, :10].mean(), right[:, 10:100].mean(), right[:, 100:].mean()]
    assert [decade.accuracy for decade in decades] == pytest.approx(wanted)


class Doubled(Parity):
    """A user's own task."""

    def running(self) -> Running:
        return Running(0, ((0, 1), (1, 0)))


def test_a_task_of_ones_own_may_say_how_its_answers_add_up() -> None:
    inputs, targets = join(Doubled(answer="running"), 20, 6)
    np.testing.assert_array_equal(targets, np.cumsum(inputs, axis=1) % 2)


@pytest.mark.parametrize(
    "task", [Parity(), GroupWord(peer_compat=True), CycleNavigation(answer="running", min_length=2), MQAR()]
)
def test_tasks_whose_answers_do_not_add_up_are_refused(task: Task) -> None:
    with pytest.raises(ValueError, match="do not add up from piece to piece; use parity"):
        stream_accuracy(Oracle(), task)  # type: ignore[arg-type]


def test_what_cannot_be_streamed_is_refused() -> None:
    model = Backbone(ModelConfig(layers=(LayerConfig(mixer="attention"),), width=8), vocab_size=2)
    with pytest.raises(ValueError, match="state grows with the sequence or has no known size"):
        stream_accuracy(model, PARITY)
    with pytest.raises(ValueError, match="total 0, piece 1024 and streams 1 must be >= 1"):
        stream_accuracy(Oracle(), PARITY, total=0)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_trained_gru_reads_on_and_on_in_the_same_memory() -> None:
    """Parity learnt at length 16 in 600 steps, read to 200,000: right at every token, within 16 MiB of the start."""
    torch.manual_seed(0)
    layer = LayerConfig(mixer="gru", options={"conv": 0, "init_std": 0.3})
    model = Backbone(ModelConfig(layers=(layer,), width=16), vocab_size=2)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(600):
        batch = PARITY.sample(Rows.span([0], "train", 64 * step, 64), 16)
        logits = model(batch.inputs[0])[0].flatten(0, 1)
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits, batch.targets[0].flatten()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    stream_accuracy(model, PARITY, total=10_000, piece=1_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decades = stream_accuracy(model, PARITY, total=200_000, piece=1_000)
    assert [decade.accuracy for decade in decades] == [1.0] * 6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
