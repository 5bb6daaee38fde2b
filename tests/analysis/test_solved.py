from __future__ import annotations

import math

import pandas as pd
import pytest

from statelab.analysis.settings import at_chosen, setting_columns, setting_name, settings_of
from statelab.analysis.solved import choose_rates, solved_table
from tests.analysis.frames import Accuracy, grid, lane, lanes_of


def lanes_at(**accuracies: list[float | None]) -> pd.DataFrame:
    """Lanes of one model whose rates are the arguments' names: r3 is 1e-3."""
    rows = [
        lane("parity", "gru", 10.0 ** -int(name[1:]), seed, accuracy)
        for name, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    return lanes_of(rows)


def test_solved_table_counts_and_averages() -> None:
    row = solved_table(lanes_at(r3=[1.0, 0.9, 0.5, 0.4])).iloc[0]
    assert (row["n"], row["solved"], row["diverged"], row["measured"]) == (4, 2, 0, 4)
    assert row["mean"] == pytest.approx(0.7)
    assert row["median"] == pytest.approx(0.7)
    assert (row["wilson_low"], row["wilson_high"]) == pytest.approx((0.15, 0.85), abs=0.005)


def test_a_threshold_given_replaces_the_lanes_own() -> None:
    lanes = lanes_at(r3=[1.0, 0.9, 0.5, 0.4])
    table = solved_table(lanes, threshold=0.5)
    assert (table["solved"].item(), table["threshold"].item()) == (3, 0.5)


def test_a_diverged_lane_is_unsolved_even_above_the_threshold_and_stays_in_the_mean() -> None:
    lanes = lanes_of([lane("p", "m", 1e-3, 0, 0.5), lane("p", "m", 1e-3, 1, 1.0, status="diverged")])
    row = solved_table(lanes).iloc[0]
    assert (row["solved"], row["diverged"], row["measured"]) == (0, 1, 2)
    assert row["mean"] == pytest.approx(0.75)


def test_a_lane_without_accuracy_is_unsolved_and_not_in_the_mean() -> None:
    row = solved_table(lanes_at(r3=[1.0, None])).iloc[0]
    assert (row["n"], row["solved"], row["diverged"], row["measured"], row["mean"]) == (2, 1, 1, 1, 1.0)


def test_all_lanes_without_accuracy() -> None:
    row = solved_table(lanes_at(r3=[None, None])).iloc[0]
    assert (row["solved"], row["n"]) == (0, 2)
    assert math.isnan(row["mean"])


def test_tasks_and_models_keep_the_order_of_the_spec_and_rates_ascend() -> None:
    lanes = grid(["z", "a"], ["m2", "m1"], [1e-2, 1e-3], 1, lambda *_: 1.0)
    keys = solved_table(lanes)[["task", "model", "learning_rate"]].to_numpy().tolist()
    assert keys[:3] == [["z", "m2", 1e-3], ["z", "m2", 1e-2], ["z", "m1", 1e-3]]
    assert [task for task, _, _ in keys] == ["z"] * 4 + ["a"] * 4


@pytest.mark.parametrize(
    ("accuracies", "rate"),
    [
        ({"r2": [0.9, 0.9, 0.1], "r3": [1.0, 0.8, 0.8]}, 1e-2),
        ({"r2": [0.9, 0.1], "r3": [0.95, 0.2]}, 1e-3),
        ({"r2": [0.9, 0.9], "r4": [0.9, 0.9], "r3": [0.9, 0.9]}, 1e-4),
        ({"r2": [None, None], "r3": [0.1, 0.2]}, 1e-3),
        ({"r2": [None, None], "r3": [None, None]}, 1e-3),
    ],
    ids=[
        "most solved",
        "then the higher mean",
        "then the smaller rate",
        "a mean before none",
        "all diverged",
    ],
)
def test_the_rule_of_choice(accuracies: dict[str, list[float | None]], rate: float) -> None:
    assert choose_rates(lanes_at(**accuracies))["learning_rate"].item() == rate


@pytest.mark.parametrize(
    ("accuracies", "edge"),
    [
        ({"r2": [1.0], "r3": [0.1], "r4": [0.1]}, "highest"),
        ({"r2": [0.1], "r3": [1.0], "r4": [0.1]}, ""),
        ({"r2": [0.1], "r3": [0.1], "r4": [1.0]}, "lowest"),
        ({"r3": [1.0]}, ""),
    ],
)
def test_a_choice_at_the_edge_is_flagged(accuracies: dict[str, list[float | None]], edge: str) -> None:
    chosen = choose_rates(lanes_at(**accuracies))
    assert (chosen["edge"].item(), chosen["tried"].item()) == (edge, len(accuracies))


def test_each_model_gets_its_own_rate_and_edge() -> None:
    best = {"m1": 1e-2, "m2": 1e-3}
    accuracy: Accuracy = lambda task, model, rate, seed: 1.0 if rate == best[model] else 0.5  # noqa: E731
    chosen = choose_rates(grid(["p", "q"], ["m2", "m1"], [1e-4, 1e-3, 1e-2], 2, accuracy))
    assert chosen[["task", "model", "learning_rate", "edge"]].to_numpy().tolist() == [
        ["p", "m2", 1e-3, ""],
        ["p", "m1", 1e-2, "highest"],
        ["q", "m2", 1e-3, ""],
        ["q", "m1", 1e-2, "highest"],
    ]


def test_each_models_edge_is_that_of_its_own_rates() -> None:
    rates = {"z": (1e-4, 1e-3), "a": (1e-3, 1e-2, 1e-1)}
    lanes = lanes_of([lane("p", m, rate, 0, float(rate == 1e-3)) for m in rates for rate in rates[m]])
    chosen = choose_rates(lanes)[["model", "edge", "tried"]].to_numpy().tolist()
    assert chosen == [["z", "highest", 2], ["a", "lowest", 3]]


def test_only_what_varies_within_a_model_is_part_of_a_setting() -> None:
    rows = [
        lane("p", model, 1e-3, 0, 1.0, id=f"{model}{clip}", clip=clip, steps=600 if model == "a" else 900)
        for model in "ab"
        for clip in (None, 1.0)
    ]
    lanes = lanes_of(rows)
    assert setting_columns(lanes) == ["learning_rate", "clip"]
    table = solved_table(lanes)
    assert settings_of(table) == ["learning_rate", "clip"]
    names = [setting_name(row, settings_of(table)) for _, row in table.iterrows()]
    assert names == ["0.001 clip=1", "0.001 clip=none"] * 2


def test_lanes_at_the_chosen_setting_where_it_is_one_left_out() -> None:
    rows = [
        lane("p", "m", 1e-3, seed, 1.0 if clip is None else 0.5, id=f"{clip}{seed}", clip=clip)
        for clip in (1.0, None)
        for seed in range(3)
    ]
    lanes = lanes_of(rows)
    assert list(at_chosen(lanes, choose_rates(lanes))["id"]) == ["None0", "None1", "None2"]
