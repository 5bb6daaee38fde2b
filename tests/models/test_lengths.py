"""Curricula and mixtures: one length a step, a function of the step alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from statelab.models.evaluation import Evaluation
from statelab.models.learner import Learner
from statelab.models.settings import EvaluationSettings, LengthStage, TrainingSettings
from statelab.sweeps.run import fit
from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.rows import Rows
from tests.models.training import TASK, lanes_of, model_of


def staged(*stages: LengthStage) -> TrainingSettings:
    return TrainingSettings(length=9, stages=stages, batch=3, steps=12)


CURRICULUM = staged(
    LengthStage(until=1000, between=(3, 40)),
    LengthStage(until=2000, between=(3, 80)),
    LengthStage(between=(160, 160)),
)


def test_a_curriculum_grows_with_the_step() -> None:
    first = [CURRICULUM.length_at(step) for step in range(1000)]
    second = [CURRICULUM.length_at(step) for step in range(1000, 2000)]
    assert (min(first), max(first)) == (3, 40)
    assert (min(second), max(second)) == (3, 80)
    assert CURRICULUM.length_at(2000) == CURRICULUM.length_at(10**9) == 160
    assert first == [CURRICULUM.length_at(step) for step in range(1000)]


def test_a_range_is_drawn_uniformly() -> None:
    counts = Counter(LengthStage(between=(3, 6)).draw(step) for step in range(20_000))
    assert sorted(counts) == [3, 4, 5, 6]
    assert sum((n - 5000) ** 2 / 5000 for n in counts.values()) < 21.1  # chi-square, 3 dof, p = 1e-4


def test_a_mixture_is_drawn_by_its_weights() -> None:
    counts = Counter(LengthStage(among=(64, 128), weights=(1, 3)).draw(step) for step in range(20_000))
    assert abs(counts[64] - 5000) < 4 * (20_000 * 0.25 * 0.75) ** 0.5
    assert {LengthStage(among=(64, 128)).draw(step) for step in range(100)} == {64, 128}


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ([{}], "either between"),
        ([{"between": (3, 4), "among": (3,)}], "either between"),
        ([{"between": (5, 4)}], "shortest <= longest"),
        ([{"between": (0, 4)}], "1 <= shortest"),
        ([{"among": (0,)}], "lengths must be >= 1"),
        ([{"among": (4, 5), "weights": (1.0,)}], "one number > 0 for each"),
        ([{"among": (4, 5), "weights": (1.0, 0.0)}], "one number > 0 for each"),
        ([{"between": (3, 4)}, {"between": (3, 4)}], "every stage but the last needs until"),
        ([{"between": (3, 4), "until": 5}], "the last has none"),
        (
            [{"between": (3, 4), "until": 5}, {"between": (3, 4), "until": 5}, {"between": (3, 4)}],
            "must rise",
        ),
    ],
)
def test_stages_that_cannot_work_are_refused(stages: list[dict[str, object]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        staged(*(LengthStage(**stage) for stage in stages))  # type: ignore[arg-type]


def test_rows_of_steps_of_one_length_are_made_together_and_are_each_steps_own() -> None:
    training = staged(LengthStage(until=6, between=(3, 5)), LengthStage(among=(8, 11)))
    learner = Learner(TASK, model_of("gru"), lanes_of(2), training, EvaluationSettings())
    seeds = learner.seeds_S
    for step in [*range(12), 3, 11, 0]:
        rows = Rows.span(seeds, "train", step * training.batch, training.batch)
        assert torch.equal(learner.rows(step).inputs, TASK.sample(rows, training.length_at(step)).inputs)


def test_a_learner_follows_its_curriculum_and_is_tested_over_ranges() -> None:
    training = staged(LengthStage(until=6, between=(3, 5)), LengthStage(among=(8, 11)))
    evaluation = EvaluationSettings(every=6, rows=40, test_lengths=(7,), test_ranges=((5, 44),))
    learner = Learner(TASK, model_of("gru"), lanes_of(2), training, evaluation)
    for step in range(12):
        assert learner.batch(step).inputs.shape[-1] == training.length_at(step)
    fit(learner, torch.device("cpu"))
    assert [(m.shortest, m.length) for m in learner.tests] == [(None, 7), (5, 44)]
    assert [m.length for m in learner.evaluations] == [9, 9]


def test_a_range_is_covered_evenly_by_lengths_that_the_task_has() -> None:
    settings = EvaluationSettings(rows=100)
    evaluation = Evaluation(NoisyRecall(), [0], TrainingSettings(length=8), settings)
    pieces = list(evaluation.pieces(63, 10))
    lengths = [piece.length for piece in pieces]
    assert lengths == list(range(10, 63, 2))
    assert sum(piece.rows for piece in pieces) == 100
    assert [piece.closes is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert {piece.rows for piece in pieces} == {3, 4}
