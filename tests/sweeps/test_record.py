"""Records: committed whole or not at all, read in spite of what a crash leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statelab.sweeps.record import (
    LANE_COLUMNS,
    LaneFolder,
    collect,
    collect_curves,
    collect_lengths,
    collect_metrics,
    collect_ranges,
    write_atomically,
)


def row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(LANE_COLUMNS, 1.0)
    names = {"study": "s", "task": "t", "model": "m", "status": "finished", "device": "cpu"}
    names |= {"schedule": "constant", "arithmetic": "float32"}
    return {k: v for k, v in (values | names | {"escape_step": None} | changes).items() if k != "id"}


def record(study: Path, lane_id: str, **changes: Any) -> LaneFolder:
    lane = LaneFolder(study, lane_id)
    lane.start({"seed": 1})
    lane.add_point({"step": 5, "train_loss": 1.0, "loss": 0.5, "accuracy": 0.5})
    tests: list[dict[str, Any]] = [
        {"length": 6, "accuracy": 0.5, "loss": 0.1, "metrics": {"per_class": [0.25, None]}},
        {"length": 9, "accuracy": 0.4, "loss": float("nan")},
    ]
    lane.commit({"row": row(**changes), "lengths": tests, "ranges": [{"shortest": 3, **tests[1]}]})
    return lane


def test_collect_gives_one_row_a_finished_lane(tmp_path: Path) -> None:
    record(tmp_path, "b", accuracy=0.25, loss=float("inf"))
    record(tmp_path, "a", escape_step=5)
    LaneFolder(tmp_path, "c").start({"seed": 3})
    table = collect(tmp_path)
    assert list(table.columns) == list(LANE_COLUMNS)
    assert list(table["id"]) == ["a", "b"]
    assert table["escape_step"].tolist()[0] == 5
    assert table["escape_step"].isna().tolist() == [False, True]
    assert table["loss"].isna().tolist() == [False, True]
    assert table["escape_step"].dtype.kind == "f"


def test_lengths_and_curves_are_tidy(tmp_path: Path) -> None:
    record(tmp_path, "a")
    lengths, curves = collect_lengths(tmp_path), collect_curves(tmp_path)
    assert lengths[["id", "train_length", "length", "accuracy"]].values.tolist() == [
        ["a", 1.0, 6, 0.5], ["a", 1.0, 9, 0.4]
    ]  # fmt: skip
    ranges, metrics = collect_ranges(tmp_path), collect_metrics(tmp_path)
    assert ranges[["shortest", "length", "accuracy"]].values.tolist() == [[3, 9, 0.4]]
    assert metrics[["length", "metric", "index"]].values.tolist() == [
        [6, "per_class", 0],
        [6, "per_class", 1],
    ]
    assert metrics["value"].isna().tolist() == [False, True]
    assert curves[["id", "step", "accuracy"]].values.tolist() == [["a", 5, 0.5]]


def test_only_lanes_of_the_present_spec_count(tmp_path: Path) -> None:
    record(tmp_path, "a")
    record(tmp_path, "b")
    (tmp_path / "study.json").write_text(json.dumps({"lanes": ["b", "not yet run"]}))
    assert list(collect(tmp_path)["id"]) == ["b"]


def test_an_empty_study_gives_empty_tables(tmp_path: Path) -> None:
    assert collect(tmp_path).empty
    assert collect_lengths(tmp_path).empty
    assert list(collect(tmp_path).columns) == list(LANE_COLUMNS)


@pytest.mark.parametrize("content", ["", "{", '{"row": ', "[1]", "\x00\x00"])
def test_a_result_that_cannot_be_read_is_no_result(tmp_path: Path, content: str) -> None:
    lane = record(tmp_path, "a")
    (lane.path / "result.json").write_text(content)
    assert not lane.finished()
    assert collect(tmp_path).empty


def test_a_torn_curve_is_read_up_to_the_tear(tmp_path: Path) -> None:
    lane = record(tmp_path, "a")
    with (lane.path / "curve.jsonl").open("a") as file:
        file.write('{"step": 10, "accu')
    assert [point["step"] for point in lane.curve()] == [5]


def test_starting_again_keeps_the_evaluations_made_before(tmp_path: Path) -> None:
    lane = record(tmp_path, "a")
    lane.start({"seed": 1}, lane.curve())
    lane.add_point({"step": 10, "accuracy": 0.9})
    assert [point["step"] for point in lane.curve()] == [5, 10]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
