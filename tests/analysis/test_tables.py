"""Capacity, summaries, published figures and the tables of words that show them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from statelab.analysis import tables
from statelab.analysis.capacity import capacity_table, pareto
from statelab.analysis.differences import paired_differences
from statelab.analysis.escape import escape_times, time_differences, time_table
from statelab.analysis.layout import Section, as_latex
from statelab.analysis.lengths import length_table, reach_table, with_prefix_exact
from statelab.analysis.published import compare_published, read_published
from statelab.analysis.solved import choose_rates, solved_table
from statelab.analysis.summaries import curve_table, metric_table, range_table
from tests.analysis.frames import by_length, curves_of, grid


def pair(seeds: int = 4) -> pd.DataFrame:
    """Two models on two tasks: one always solves, the other at half of the seeds."""
    return grid(
        ["p", "q"], ["good", "fair"], [1e-3], seeds,
        lambda task, model, rate, seed: 0.95 if model == "good" or seed % 2 else 0.5,
    )  # fmt: skip


def test_two_models_are_shown_as_papers_do() -> None:
    lanes = pair()
    chosen = choose_rates(lanes)
    (section,) = tables.pair_sections(tables.pair_table(chosen, paired_differences(lanes, chosen)))
    assert section.header == ("task", "good", "fair", "difference")
    assert section.rows[0] == ("p", "95.0 (4/4)", "72.5 ± 41.3 (2/4)", "+22.5 ± 41.3")


def test_several_pairs_name_their_models_and_many_are_left_to_the_file() -> None:
    lanes = grid(["p"], ["a", "b", "c"], [1e-3], 2, lambda task, model, rate, seed: 0.5)
    chosen = choose_rates(lanes)
    table = tables.pair_table(chosen, paired_differences(lanes, chosen))
    (section,) = tables.pair_sections(table)
    assert [row[:3] for row in section.rows] == [("p", "a", "b"), ("p", "a", "c"), ("p", "b", "c")]
    assert tables.pair_sections(pd.concat([table] * 5)) == []


@pytest.mark.parametrize(
    ("cost", "value", "best"),
    [
        ([1, 2, 3], [0.5, 0.4, 0.9], [True, False, True]),
        ([1, 1, 2], [0.5, 0.9, 0.9], [False, True, False]),
        ([1, 1], [0.5, 0.5], [True, True]),
        ([math.nan, 2], [0.9, 0.5], [False, True]),
        ([1, 2], [math.nan, 0.5], [False, True]),
    ],
)
def test_pareto(cost: list[float], value: list[float], best: list[bool]) -> None:
    assert pareto(pd.Series(cost), pd.Series(value)).tolist() == best


def test_capacity_of_models_without_a_fixed_state() -> None:
    lanes = pair()
    lanes.loc[lanes["model"] == "good", "state_size"] = np.nan
    table = capacity_table(lanes, choose_rates(lanes))
    assert table["best_for_state_size"].tolist() == [False, True] * 2
    assert table["best_for_seconds"].tolist() == [True, False] * 2
    assert [row[2] for row in tables.capacity_sections(table)[0].rows] == ["grows", "64 *"] * 2


@pytest.mark.parametrize(
    ("shares", "reach"),
    [
        ({16: 4, 32: 2, 64: 1}, 32),
        ({16: 4, 32: 1, 64: 4}, 16),
        ({16: 1, 32: 4}, math.nan),
        ({8: 0, 16: 4}, 16),
    ],
    ids=["half", "unbroken only", "not at first", "shorter than trained"],
)
def test_reach(shares: dict[int, int], reach: float) -> None:
    rows = [("p", "m", length, 16, 4, solved) for length, solved in shares.items()]
    table = reach_table(
        pd.DataFrame(rows, columns=["task", "model", "length", "train_length", "n", "solved"])
    )
    assert table["reach"].tolist() == pytest.approx([reach], nan_ok=True)


def test_rows_without_a_mistake_are_the_last_of_their_prefixes() -> None:
    lanes = pair(1)
    lengths = by_length(lanes, [16, 32])
    metrics = pd.DataFrame(
        [("p-good-0.001-0", 16, "prefix_exact", i, value) for i, value in enumerate((1.0, 0.5, 0.25))],
        columns=["id", "length", "metric", "index", "value"],
    )
    found = with_prefix_exact(lengths, metrics)
    assert len(found) == len(lengths)
    assert found["prefix_exact"].dropna().tolist() == [0.25]


def test_summaries_over_seeds() -> None:
    lanes = pair()
    chosen = choose_rates(lanes)
    curves = curve_table(curves_of(lanes), lanes, chosen)
    last = curves.query("task == 'p' and model == 'fair' and what == 'accuracy' and step == 600")
    assert last[["measured", "median"]].to_numpy().tolist() == [[4, 0.725]]
    ranges = by_length(lanes, [64], decay=0.0).assign(shortest=16)
    of_ranges = range_table(ranges, lanes, chosen).query("task == 'q' and model == 'fair'")
    assert of_ranges[["solved", "n"]].to_numpy().tolist() == [[2, 4]]
    keys = ["id", "task", "model", "train_length", "length"]
    metrics = ranges[keys].assign(metric="per_class", index=3, value=[0.25, 0.75] * 8)
    of_metrics = metric_table(metrics, lanes, chosen)
    assert of_metrics[["metric", "index", "mean"]].to_numpy().tolist() == [["per_class", 3, 0.5]] * 4
    assert metric_table(metrics.head(0), lanes, chosen).empty


def test_words_of_times() -> None:
    lanes = grid(
        ["p"], ["yes", "no"], [1e-3], 4, lambda task, model, rate, seed: 0.95 if model == "yes" else 0.5
    )
    times, chosen = escape_times(lanes), choose_rates(lanes)
    first, second = tables.time_sections(time_table(times, chosen), time_differences(times, chosen))
    assert first.rows == (("p", "yes", "4/4", "300", "300"), ("p", "no", "0/4", "> 600", "600"))
    assert second.rows[0][:5] == ("p", "yes", "no", "0.0082", "∞")


def test_solved_counts_by_rate() -> None:
    lanes = grid(
        ["p"], ["a", "b"], [1e-3, 1e-2], 3, lambda task, model, rate, seed: 0.95 if rate > 5e-3 else 0.5
    )
    (section,) = tables.rate_sections(solved_table(lanes))
    assert (section.header, section.rows[0]) == (("model", "0.001", "0.01"), ("a", "0/3", "3/3"))


PUBLISHED = """
citation = "A. Author, 2026"
[[figures]]
task = "p"
model = "good"
percent = 97.0
half_width = 3
solved = 3
n = 4
[[figures]]
task = "p"
model = "fair"
percent = 99.9
length = 32
[[figures]]
task = "p"
model = "other"
solved = 20
n = 24
"""


def test_published_figures_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "published.toml").write_text(PUBLISHED, encoding="utf-8")
    lanes = pair()
    published = read_published(tmp_path / "published.toml")
    found = compare_published(published, lanes, by_length(lanes, [16, 32], decay=0.5), choose_rates(lanes))
    assert found["our_mean"].tolist() == pytest.approx([0.95, 0.5 + 0.225 / 2, math.nan], nan_ok=True)
    assert found["our_n"].tolist() == [4, 4, 0]
    assert found["means_overlap"].tolist() == [True, False, None]
    assert found["shares_overlap"].tolist() == [True, None, None]
    across, lines = tables.published_sections(found)
    assert across.rows[0] == ("good", "95.0 / 97.0", "n/a")
    assert lines.rows[0] == ("p", "good", "95.0 (4/4)", "97.0 ± 3.0 (3/4)", "yes", "yes")
    assert read_published(tmp_path / "none.toml").empty


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("figures", "not TOML"),
        ("citation = 'x'", r"needs a list \[\[figures\]\]"),
        ("[[figures]]\ntask = 'p'", r"figures\[0\]: needs task and model"),
        ("[[figures]]\ntask = 'p'\nmodel = 'm'", "needs percent, or solved and n"),
        ("[[figures]]\ntask = 'p'\nmodel = 'm'\npercnt = 1", "unknown percnt; known: citation"),
        ("[[figures]]\ntask = 'p'\nmodel = 'm'\npercent = '1'", "percent must be a number, got '1'"),
        ("[[figures]]\ntask = 'p'\nmodel = 'm'\nsolved = 5\nn = 4", r"lie in \[0, n\] = \[0, 4\], got 5"),
        (
            "[[figures]]\ntask = 'p'\nmodel = 'm'\npercent = 1\nmeasure = 'loss'",
            "one of accuracy, scaled_accuracy",
        ),
    ],
)
def test_a_published_file_with_a_mistake(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "published.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=sentence):
        read_published(path)


def test_latex_escapes_what_it_must() -> None:
    section = Section(title="50 %", header=("a_b", "n & m"), rows=(("x ± 1", "≥ 2"),))
    assert as_latex([section], ["a note"]).splitlines() == [
        r"% needs \usepackage{booktabs}",
        "",
        r"\begin{table}",
        r"\centering",
        r"\caption{50 \%}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"a\_b & n \& m \\",
        r"\midrule",
        r"x $\pm$ 1 & $\geq$ 2 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
        "% a note",
    ]


def test_words_of_reach_say_where_a_curve_may_go_on() -> None:
    lanes = pair()
    table = length_table(by_length(lanes, [16, 32], decay=0.0), lanes, choose_rates(lanes))
    (section,) = tables.reach_sections(reach_table(table))
    assert section.rows[0] == ("p", "good", "16", "32 (the longest tested)")
