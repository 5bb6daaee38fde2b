"""Escape times of lanes and curves from anywhere, and the sets of them that are compared."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from statelab.analysis.escape import escape_times, survival_curves, time_differences, time_table
from statelab.analysis.solved import choose_rates, fixed_rate, solved_table, threshold_table
from statelab.analysis.tidy import as_lanes, lanes_of_curves
from tests.analysis.frames import curves_of, grid, lane, lanes_of

STEPS = (200, 400, 600, 800, 1000)


def published_curves(solved_at: dict[str, list[int | None]]) -> pd.DataFrame:
    """What an importer of another laboratory's runs makes: a row per evaluation, no rate, task or id."""
    return pd.DataFrame(
        [
            {"model": model, "seed": 11 + i, "step": step, "accuracy": 0.97 if at and step >= at else 0.03}
            for model, times in solved_at.items()
            for i, at in enumerate(times)
            for step in STEPS
        ]
    )


def test_counts_and_curves_of_imported_runs() -> None:
    curves = published_curves({"base": [None, None, 600, None], "orth": [400, 800, 600, None]})
    lanes = lanes_of_curves(curves, threshold=0.8)
    assert lanes[["task", "status"]].drop_duplicates().to_numpy().tolist() == [["all", "finished"]]
    chosen = choose_rates(lanes)
    assert chosen[["model", "solved", "n"]].to_numpy().tolist() == [["base", 1, 4], ["orth", 3, 4]]
    times = escape_times(lanes)
    table = time_table(times, chosen)
    assert table[["escaped", "horizon"]].to_numpy().tolist() == [[1, 1000], [3, 1000]]
    assert math.isnan(table["median"][0])
    assert table["median"][1] == 600
    assert table["restricted_mean"].tolist() == pytest.approx([900, 700])
    ends = survival_curves(times, chosen).groupby("model")["survival"].min()
    assert ends.tolist() == pytest.approx([0.75, 0.25])


def test_another_threshold_is_read_from_the_curves() -> None:
    lanes = grid(["p"], ["m"], [1e-3], 3, lambda task, model, rate, seed: [0.95, 0.85, 0.6][seed])
    curves = curves_of(lanes)
    with pytest.raises(ValueError, match=r"threshold 0.8 need curves="):
        escape_times(lanes, threshold=0.8)
    times = escape_times(lanes, curves, threshold=0.8)
    assert times["escaped"].tolist() == [True, True, False]
    assert times["time"].tolist() == [300, 600, 600]
    assert escape_times(lanes, curves)["escaped"].tolist() == [True, False, False]


def test_a_diverged_lane_is_at_risk_to_the_end() -> None:
    lanes = lanes_of([lane("p", "m", 1e-3, 0, 0.95), lane("p", "m", 1e-3, 1, None)])
    curve = survival_curves(escape_times(lanes), choose_rates(lanes))
    assert curve[["time", "at_risk", "survival"]].to_numpy().tolist() == [[300, 2, 0.5], [600, 1, 0.5]]


def test_differences_in_time_and_whether_rates_are_equal() -> None:
    lanes = grid(
        ["p"], ["a", "b", "c"], [1e-3, 1e-2], 6,
        lambda task, model, rate, seed: 0.95 if (model == "a") == (rate == 1e-2) and model != "c" else 0.2 + rate,
    )  # fmt: skip
    times, chosen = escape_times(lanes), choose_rates(lanes)
    table = time_differences(times, chosen).set_index(["first", "second"])
    assert table["same_setting"].to_dict() == {("a", "b"): False, ("a", "c"): True, ("b", "c"): False}
    assert table.loc[("a", "c"), "hazard_ratio"] == math.inf
    ((p, adjusted),) = table.query("first == 'a' and second == 'c'")[["log_rank", "log_rank_holm"]].to_numpy()
    assert p < 0.01
    assert adjusted == pytest.approx(3 * table["log_rank"].min())
    at_one = time_differences(times, fixed_rate(lanes, 1e-2), pairs=[("a", "b")])
    assert at_one[["first", "second", "same_setting", "low"]].to_numpy().tolist()[0][:3] == ["a", "b", True]
    assert len(at_one) == 1
    assert at_one["low"].item() > 1


def test_a_rate_that_no_lane_has() -> None:
    lanes = grid(["p"], ["a"], [1e-3, 1e-2], 2, lambda *_: 1.0)
    assert fixed_rate(lanes, 1e-3)["learning_rate"].tolist() == [1e-3]
    with pytest.raises(ValueError, match=r"rate 0.003; known: 0.001, 0.01"):
        fixed_rate(lanes, 3e-3)


def test_solved_counts_by_threshold() -> None:
    lanes = lanes_of(
        [
            *(lane("p", "m", 1e-3, seed, accuracy) for seed, accuracy in enumerate((0.3, 0.55, 0.9))),
            lane("p", "m", 1e-3, 3, 1.0, status="diverged"),
        ]
    )
    table = threshold_table(lanes, choose_rates(lanes), steps=20)
    solved = dict(zip(table["threshold"].round(2), table["solved"], strict=True))
    assert [solved[level] for level in (0.0, 0.3, 0.35, 0.55, 0.9, 0.95)] == [3, 3, 2, 2, 1, 0]
    assert set(table["n"]) == {4}


def test_plain_frames_are_completed_and_refused_with_a_sentence() -> None:
    plain = pd.DataFrame({"model": ["a", "a"], "seed": [0, 1], "accuracy": [0.9, np.nan]})
    lanes = as_lanes(plain, threshold=0.8)
    assert lanes["id"].tolist() == ["all/a/nan/0", "all/a/nan/1"]
    assert as_lanes(lanes) is lanes
    assert solved_table(plain, threshold=0.8)[["solved", "n", "measured"]].to_numpy().tolist() == [[1, 2, 1]]
    with pytest.raises(ValueError, match="give threshold="):
        as_lanes(plain)
    with pytest.raises(ValueError, match="seed, accuracy missing from: model"):
        as_lanes(plain[["model"]], 0.8)
    with pytest.raises(ValueError, match=r"missing: \['step'\]"):
        lanes_of_curves(plain, 0.8)
    with pytest.raises(ValueError, match="each lane's 'steps'"):
        escape_times(plain, threshold=0.8)
    with pytest.raises(ValueError, match="'escape_step', or curves="):
        escape_times(plain.assign(steps=5, threshold=0.8))
