"""All results read in one pass, and curves and metrics of some lanes alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from statelab.sweeps.record import (
    CURVE_COLUMNS,
    METRIC_COLUMNS,
    collect,
    collect_all,
    collect_curves,
    collect_lengths,
    collect_metrics,
    collect_ranges,
)
from tests.sweeps.test_record import record


def test_one_pass_finds_what_single_ones_find(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lane = record(tmp_path, name)
        result = lane.result()
        assert result is not None
        lane.commit(
            result | {"run": {"population": 2, "torch": "2.13.0", "statelab": "0.1", "finished": "today"}}
        )
    found = collect_all(tmp_path)
    pd.testing.assert_frame_equal(found.lanes, collect(tmp_path))
    pd.testing.assert_frame_equal(found.lengths, collect_lengths(tmp_path))
    pd.testing.assert_frame_equal(found.ranges, collect_ranges(tmp_path))
    assert found.runs.to_numpy().tolist() == [[name, 2, "2.13.0", "0.1", "today"] for name in "ab"]


def test_results_without_a_run_are_read(tmp_path: Path) -> None:
    record(tmp_path, "a")
    assert collect_all(tmp_path).runs["torch"].isna().tolist() == [True]


def test_curves_and_metrics_of_some_lanes(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        record(tmp_path, name).add_point({"step": 10, "train_loss": None, "loss": 0.25, "accuracy": 0.75})
    curves, metrics = (read(tmp_path, {"a", "c"}) for read in (collect_curves, collect_metrics))
    assert (list(curves), list(metrics)) == (list(CURVE_COLUMNS), list(METRIC_COLUMNS))
    assert curves[["id", "step"]].to_numpy().tolist() == [["a", 5], ["a", 10], ["c", 5], ["c", 10]]
    assert curves["train_loss"].isna().tolist() == [False, True] * 2
    assert metrics["id"].tolist() == ["a", "a", "c", "c"]
    assert collect_curves(tmp_path, set()).empty
    assert len(collect_curves(tmp_path)) == 6
