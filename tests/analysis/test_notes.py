from __future__ import annotations

import pandas as pd
import pytest

from statelab.analysis import notes
from statelab.analysis.differences import paired_differences
from statelab.analysis.lengths import length_table
from statelab.analysis.solved import choose_rates, solved_table
from tests.analysis.frames import by_length, grid


def told(lanes: pd.DataFrame, wanted: int | None = None) -> str:
    return "\n".join(notes.study_notes(lanes, solved_table(lanes), choose_rates(lanes), wanted))


def simple(seeds: int, accuracy: float | None, rates: tuple[float, ...] = (1e-3,)) -> pd.DataFrame:
    return grid(["p"], ["a", "b"], rates, seeds, lambda *_: accuracy)


@pytest.mark.parametrize(
    ("lanes", "sentence"),
    [
        (simple(1, 0.95).head(1), "One lane has finished."),
        (simple(1, 0.95), "All lanes have one seed"),
        (simple(3, None), "Every lane diverged (6 lanes)."),
        (simple(3, None), "6 lanes left no accuracy"),
        (simple(3, 1.0), "Every lane solved its task"),
        (simple(3, 0.4), "No lane solved its task."),
        (simple(3, 1.0).head(5), "Settings have 2 to 3 lanes"),
        (simple(3, 1.0), "One rate was tried for each model, so none was chosen."),
        (simple(3, 1.0, (1e-3, 1e-2)), notes.RULE),
        (simple(3, 1.0, (1e-3, 1e-2)), "chosen among 2 rates, on the same seeds"),
        (simple(3, 1.0, (1e-3, 1e-2)), "Every chosen rate is the lowest or the highest tried"),
    ],
)
def test_what_is_so_is_said(lanes: pd.DataFrame, sentence: str) -> None:
    assert sentence in told(lanes)


def test_what_is_not_so_is_not_said() -> None:
    def accuracy(task: str, model: str, rate: float, seed: int) -> float:
        return 1.0 if rate == 1e-3 and seed else 0.5

    lanes = grid(["p"], ["a", "b"], [1e-4, 1e-3, 1e-2], 3, accuracy)
    assert [
        note.split()[0] for note in notes.study_notes(lanes, solved_table(lanes), choose_rates(lanes), 18)
    ] == [
        "±:",
        "*",
        "It",
    ]


def test_which_models_are_at_an_edge() -> None:
    best = {"a": 1e-2, "b": 1e-3, "c": 1e-4}
    lanes = grid(["p"], ["a", "b", "c"], [1e-4, 1e-3, 1e-2], 2, lambda t, m, rate, s: float(rate == best[m]))
    assert "better one may lie beyond; the highest: a on p; the lowest: c on p." in told(lanes)


def test_progress() -> None:
    assert "So far 6 of 8 lanes have finished." in told(simple(3, 1.0), wanted=8)


def test_differences_left_to_the_file_are_announced() -> None:
    lanes = grid(["p"], list("abcdefgh"), [1e-3], 2, lambda *_: 1.0)
    text = "\n".join(notes.difference_notes(paired_differences(lanes, choose_rates(lanes))))
    assert "The 28 differences between models are in differences.csv." in text


def test_seeds_without_a_partner_are_counted() -> None:
    lanes = simple(3, 1.0).head(5)
    table = paired_differences(lanes, choose_rates(lanes))
    *_, power, left_out = notes.difference_notes(table)
    assert left_out == "Left out of differences: seeds that only one of two models has, 1 in all."
    assert "with 2 pairs, not below 0.5 before" in power


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([], "No accuracy by length was recorded"),
        ([16], "One length only was tested, 16"),
        ([16, 32], "By length:"),
    ],
)
def test_length_notes(lengths: list[int], sentence: str) -> None:
    lanes = simple(3, 1.0)
    table = length_table(by_length(lanes, lengths), lanes, choose_rates(lanes))
    assert sentence in "\n".join(notes.length_notes(table))


def test_untested_lanes_are_counted_once_for_all_lengths() -> None:
    lanes = grid(["p"], ["a"], [1e-3], 3, lambda task, model, rate, seed: None if seed == 0 else 1.0)
    table = length_table(by_length(lanes, [16, 32]), lanes, choose_rates(lanes))
    assert notes.length_notes(table)[-1].startswith("1 lane left no accuracy at some length")
