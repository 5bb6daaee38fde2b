from __future__ import annotations

import io
import math

import pandas as pd
import pytest

from statelab.analysis.differences import paired_differences
from statelab.analysis.layout import WIDTH, Section, as_markdown, as_text
from statelab.analysis.lengths import length_table
from statelab.analysis.render import (
    MOST_DIFFERENCES,
    accuracy_cell,
    as_csv,
    chosen_sections,
    difference_sections,
    length_sections,
    mark_chosen,
    solved_sections,
)
from statelab.analysis.solved import choose_rates, solved_table
from tests.analysis.frames import by_length, grid

LONG = "a model whose name says its width, its depth and both of its initialisations at length"


@pytest.mark.parametrize(
    ("mean", "half_width", "expected"),
    [
        (0.875, 0.124, "87.5 ± 12.4 (20/24)"),
        (1.0, math.nan, "100.0 (20/24)"),
        (math.nan, math.nan, "n/a (20/24)"),
    ],
)
def test_accuracy_cell(mean: float, half_width: float, expected: str) -> None:
    assert accuracy_cell(mean, half_width, 20, 24) == expected


def test_solved_section_marks_the_chosen_rate() -> None:
    lanes = grid(
        ["parity"], ["gru"], [1e-3, 1e-2], 4, lambda task, model, rate, seed: 1.0 if rate > 5e-3 else 0.5
    )
    sections = solved_sections(solved_table(lanes), choose_rates(lanes), {"parity": 0.5})
    text = as_text(sections, ["A note."])
    assert text.splitlines() == [
        "parity: solved at accuracy ≥ 90 %, chance 50 %",
        "",
        "   model  rate   accuracy % (solved)  solved, 95 %  median %  IQM %  diverged",
        "   gru    0.001           50.0 (0/4)        0–49 %      50.0   50.0         0",
        "*  gru    0.01           100.0 (4/4)      51–100 %     100.0  100.0         0",
        "",
        "A note.",
    ]


def test_texts_fit_the_width_whatever_the_names_and_numbers_of_models_and_tasks() -> None:
    models = [LONG, *(f"model {i}" for i in range(7))]
    tasks = [f"modular arithmetic, setting {i}" + i * ", longer" for i in range(5)]
    lanes = grid(tasks, models, [1e-3], 3, lambda task, model, rate, seed: 0.5 + seed / 7)
    chosen = choose_rates(lanes)
    lengths = length_table(by_length(lanes, [2**i for i in range(4, 12)]), lanes, chosen)
    sections = [
        *chosen_sections(chosen),
        *solved_sections(solved_table(lanes), chosen, {}),
        *difference_sections(paired_differences(lanes, chosen).head(MOST_DIFFERENCES)),
        *length_sections(lengths),
    ]
    lines = as_text(sections, ["word " * 60]).splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert "word word" in lines[-1]


def test_a_broken_cell_loses_no_word() -> None:
    section = Section(title="t", header=("model", "n"), rows=((LONG, "9" * 40),))
    _, _, header, *lines = as_text([section], []).splitlines()
    assert header.split() == ["model", "n"]
    assert " ".join(" ".join(lines).replace("9", "").split()) == LONG
    assert len(lines) == 2


def test_length_section_has_a_column_per_length() -> None:
    lanes = grid(
        ["parity"], ["gru", "rnn"], [1e-3], 2, lambda task, model, rate, seed: 1.0 if model == "gru" else 0.5
    )
    table = length_table(by_length(lanes, [16, 32]), lanes, choose_rates(lanes))
    (section,) = length_sections(table)
    assert section.title == "parity: accuracy % (solved) by length, trained at 16"
    assert section.header == ("model", "16", "32")
    assert section.rows == (("gru", "100.0 (2/2)", "90.0 (2/2)"), ("rnn", "50.0 (0/2)", "50.0 (0/2)"))


def test_a_model_that_a_task_lacks_is_not_available() -> None:
    lanes = grid(["p", "q"], ["a", "b"], [1e-3], 2, lambda *_: 1.0)
    chosen = choose_rates(lanes[(lanes["task"] == "p") | (lanes["model"] == "a")])
    (section,) = chosen_sections(chosen)
    assert section.rows == (("a", "100.0 (2/2)", "100.0 (2/2)"), ("b", "100.0 (2/2)", "n/a"))


def test_difference_section_has_signs_and_counts() -> None:
    lanes = grid(["p"], ["a", "b"], [1e-3], 2, lambda task, model, rate, seed: 0.5 if model == "a" else 0.75)
    (section,) = difference_sections(paired_differences(lanes, choose_rates(lanes)))
    assert section.rows == (("p", "a", "b", "-25.0", "", "2", "0/2 : 0/2", "0.50", "1.00"),)


def test_markdown_escapes_bars() -> None:
    section = Section(title="t", header=("model", "n"), rows=(("a|b", "1"),))
    assert (
        as_markdown([section], ["note"]) == "### t\n\n| model | n |\n| :-- | --: |\n| a\\|b | 1 |\n\n- note\n"
    )


def test_csv_reads_back_what_was_written() -> None:
    lanes = grid(["p, q"], ['m"1'], [1e-3, 1e-2], 3, lambda task, model, rate, seed: rate + seed / 3)
    table = mark_chosen(solved_table(lanes), choose_rates(lanes))
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(as_csv(table))), table)
