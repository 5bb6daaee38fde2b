from __future__ import annotations

import pytest

from statelab.analysis.lengths import chance_levels, length_table
from statelab.analysis.solved import choose_rates
from tests.analysis.frames import by_length, grid, lane, lanes_of


def test_length_table_at_the_chosen_rate() -> None:
    lanes = grid(["p"], ["m"], [1e-3, 1e-2], 2, lambda task, model, rate, seed: 1.0 if rate == 1e-2 else 0.5)
    table = length_table(by_length(lanes, [32, 16, 64]), lanes, choose_rates(lanes))
    assert list(table["length"]) == [16, 32, 64]
    # 32 was tested first: 1.0, then 0.9 at 16 and 0.82 at 64.
    assert list(table["mean"]) == pytest.approx([0.9, 1.0, 0.82])
    assert list(table["solved"]) == [2, 2, 0]
    assert set(table["train_length"]) == {16}


def test_a_lane_that_was_not_tested_counts_as_unsolved() -> None:
    lanes = grid(["p"], ["m"], [1e-3], 3, lambda task, model, rate, seed: None if seed == 0 else 1.0)
    row = length_table(by_length(lanes, [16]), lanes, choose_rates(lanes)).iloc[0]
    assert (row["n"], row["solved"], row["measured"], row["mean"]) == (3, 2, 2, 1.0)


def test_no_lengths() -> None:
    lanes = grid(["p"], ["m"], [1e-3], 3, lambda *_: 1.0)
    assert length_table(by_length(lanes, []), lanes, choose_rates(lanes)).empty


@pytest.mark.parametrize("answers", [2, 3, 60])
def test_chance_is_found_from_scaled_accuracy(answers: int) -> None:
    chance = 1 / answers
    rows = [
        lane("p", "m", 1e-3, seed, accuracy, scaled_accuracy=(accuracy - chance) / (1 - chance))
        for seed, accuracy in enumerate([chance, 0.97, 1.0, 0.1])
    ]
    assert chance_levels(lanes_of(rows)) == {"p": pytest.approx(chance)}


@pytest.mark.parametrize("accuracy", [1.0, None], ids=["all right", "all diverged"])
def test_chance_is_not_known_where_no_lane_tells(accuracy: float | None) -> None:
    assert chance_levels(grid(["p"], ["m"], [1e-3], 2, lambda *_: accuracy)) == {}
