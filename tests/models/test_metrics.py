"""Every metric against a count by hand, in pure Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from statelab.models import metrics
from statelab.models.evaluation import Counts, Span
from statelab.models.metrics import METRICS, accuracy, scaled_accuracy
from statelab.models.settings import Metric
from statelab.tasks.batch import IGNORE, Batch

R, B, T = 3, 5, 7


@pytest.fixture
def scene() -> tuple[torch.Tensor, Batch]:
    """Random answers to rows that all lanes share, some positions not scored."""
    torch.manual_seed(3)
    targets = torch.randint(4, (1, B, T))
    scored = torch.rand(1, B, T) < 0.7
    scored[0, 0] = False
    targets = torch.where(scored, targets, IGNORE)
    distance = torch.where(scored, torch.randint(1, 40, (1, B, T)), IGNORE)
    group = torch.where(scored, torch.randint(3, (1, B, T)), IGNORE)
    right = (torch.rand(R, B, T) < 0.6) & scored
    length = torch.full((1, B), T)
    batch = Batch(
        inputs=targets, targets=targets, loss_targets=targets, length=length, distance=distance, group=group
    )
    return right, batch


def cells(batch: Batch) -> list[tuple[int, int]]:
    return [(b, t) for b in range(B) for t in range(T) if batch.targets[0, b, t] != IGNORE]


def slow_prefix_exact(right: torch.Tensor, batch: Batch, place: int) -> tuple[int, int]:
    scored = set(cells(batch))
    fine = [all(right[b, t] for t in range(place + 1) if (b, t) in scored) for b in range(B)]
    return sum(fine), B


def slow_exact_answers(right: torch.Tensor, batch: Batch, place: int) -> tuple[int, int]:
    assert batch.group is not None
    answers: dict[tuple[int, int], bool] = {}
    for b, t in cells(batch):
        key = (b, int(batch.group[0, b, t]))
        answers[key] = answers.get(key, True) and bool(right[b, t])
    return sum(answers.values()), len(answers)


def by(place_of: Callable[[Batch, int, int], int]) -> Callable[[torch.Tensor, Batch, int], tuple[int, int]]:
    def count(right: torch.Tensor, batch: Batch, place: int) -> tuple[int, int]:
        here = [(b, t) for b, t in cells(batch) if place_of(batch, b, t) == place]
        return sum(bool(right[b, t]) for b, t in here), len(here)

    return count


def octave(batch: Batch, b: int, t: int) -> int:
    assert batch.distance is not None
    return int(batch.distance[0, b, t]).bit_length() - 1


SLOW: dict[Metric, Callable[[torch.Tensor, Batch, int], tuple[int, int]]] = {
    "by_distance": by(octave),
    "exact_answers": slow_exact_answers,
    "per_class": by(lambda batch, b, t: int(batch.targets[0, b, t])),
    "per_position": by(lambda batch, b, t: t),
    "prefix_exact": slow_prefix_exact,
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_counts_as_by_hand(name: Metric, scene: tuple[torch.Tensor, Batch]) -> None:
    right, batch = scene
    hits, trials = METRICS[name](right, batch)
    trials = trials.expand_as(hits)
    for lane in range(R):
        for place in range(hits.shape[1]):
            found = int(hits[lane, place]), int(trials[lane, place])
            assert found == SLOW[name](right[lane], batch, place), (name, lane, place)


def test_accuracy_is_micro(scene: tuple[torch.Tensor, Batch]) -> None:
    right, batch = scene
    hits, trials = accuracy(right, batch)
    assert hits[:, 0].tolist() == [int(right[r].sum()) for r in range(R)]
    assert trials.tolist() == [[len(cells(batch))]]


def test_pieces_of_an_evaluation_add_up(scene: tuple[torch.Tensor, Batch]) -> None:
    right, batch = scene
    counts = Counts()
    loss = torch.ones(R)
    narrow = metrics.per_class(right[:, :1], part(batch, slice(0, 1)))
    for rows, counted in (
        (slice(0, 1), narrow),
        (slice(1, B), metrics.per_class(right[:, 1:], part(batch, slice(1, B)))),
    ):
        hits, trials = accuracy(right[:, rows], part(batch, rows))
        counts.add(loss, {"accuracy": (hits, trials.expand_as(hits)), "per_class": counted})
    closed = counts.close(7, Span(T, T), [0.0] * R)
    total = len(cells(batch))
    assert closed.accuracy == [int(right[r].sum()) / total for r in range(R)]
    assert closed.loss == pytest.approx([2 / total] * R)
    hits, trials = metrics.per_class(right, batch)
    for lane in range(R):
        wanted = [
            h / t if t else None for h, t in zip(hits[lane].tolist(), trials[lane].tolist(), strict=True)
        ]
        assert closed.metrics["per_class"][lane] == wanted


def part(batch: Batch, rows: slice) -> Batch:
    kept = {name: getattr(batch, name)[:, rows] for name in Batch.__dataclass_fields__}
    return Batch(**kept)


def test_scaled_accuracy_is_0_at_chance_and_1_when_perfect() -> None:
    assert scaled_accuracy(0.2, 5) == pytest.approx(0)
    assert scaled_accuracy(1.0, 5) == 1
    assert scaled_accuracy(0.0, 2) == -1
