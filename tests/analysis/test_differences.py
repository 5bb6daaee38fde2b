from __future__ import annotations

import pytest

from statelab.analysis.differences import paired_differences
from statelab.analysis.solved import choose_rates
from tests.analysis.frames import grid, lane, lanes_of

SCORES = {"a": 1.0, "b": 0.7, "c": 0.4}


def test_every_two_models_of_a_task() -> None:
    lanes = grid(
        ["p", "q"], ["c", "a", "b"], [1e-3], 3, lambda task, model, rate, seed: SCORES[model] - 0.01 * seed
    )
    table = paired_differences(lanes, choose_rates(lanes))
    assert table[["task", "first", "second"]].to_numpy().tolist() == [
        [task, *pair] for task in "pq" for pair in (("c", "a"), ("c", "b"), ("a", "b"))
    ]
    assert list(table["difference"]) == pytest.approx([-0.6, -0.3, 0.3] * 2)
    assert table["half_width"].max() < 1e-12 or table["half_width"].isna().all()


def test_only_lanes_at_the_chosen_rates_are_compared() -> None:
    def accuracy(task: str, model: str, rate: float, seed: int) -> float:
        return {("a", 1e-3): 0.9, ("a", 1e-2): 0.2, ("b", 1e-3): 0.1, ("b", 1e-2): 0.6}[model, rate]

    lanes = grid(["p"], ["a", "b"], [1e-3, 1e-2], 2, accuracy)
    row = paired_differences(lanes, choose_rates(lanes)).iloc[0]
    assert row["difference"] == pytest.approx(0.3)
    assert (row["pairs"], row["n_first"], row["n_second"]) == (2, 2, 2)
    assert (row["solved_first"], row["solved_second"]) == (2, 0)


def test_seeds_are_matched_not_places() -> None:
    rows = [lane("p", "a", 1e-3, seed, seed / 10) for seed in (1, 2, 3)]
    rows += [lane("p", "b", 1e-3, seed, seed / 10 - 0.1) for seed in (3, 2, 5)]
    lanes = lanes_of(rows)
    row = paired_differences(lanes, choose_rates(lanes)).iloc[0]
    assert (row["pairs"], row["unmatched"]) == (2, 2)
    assert row["difference"] == pytest.approx(0.1)


def test_against_a_reference() -> None:
    lanes = grid(["p"], ["a", "b", "c"], [1e-3], 2, lambda task, model, rate, seed: SCORES[model])
    table = paired_differences(lanes, choose_rates(lanes), reference="b")
    assert table[["first", "second"]].to_numpy().tolist() == [["a", "b"], ["c", "b"]]
    with pytest.raises(ValueError, match="unknown reference model 'd'; known: a, b, c"):
        paired_differences(lanes, choose_rates(lanes), reference="d")


def test_one_model_has_no_differences() -> None:
    lanes = grid(["p"], ["a"], [1e-3], 2, lambda *_: 1.0)
    assert paired_differences(lanes, choose_rates(lanes)).empty
