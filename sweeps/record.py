"""What one finished lane leaves behind, and how a study's lanes become one table. Imports no torch.

A study's folder holds `lanes/<id>/` for each lane: `spec.json` (its resolved settings), `curve.jsonl` (one line an
evaluation) and `result.json`, written last and atomically: a lane is finished when, and only when, it is there.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelab.sweeps.frames import frame_of, stacked
from statelab.sweeps.readable import is_result, points_of, read_json, read_study

if TYPE_CHECKING:
    import pandas as pd

LANE_COLUMNS = (
    "id", "study", "task", "model", "seed",
    "learning_rate", "weight_decay", "beta1", "beta2", "eps", "clip", "warmup", "floor",
    "schedule", "steps", "batch", "arithmetic", "length", "threshold",
    "status", "diverged_at", "accuracy", "scaled_accuracy", "loss", "escape_step",
    "parameters", "state_size", "seconds", "device",
)  # fmt: skip
LENGTH_COLUMNS = (
    "id", "study", "task", "model", "seed", "learning_rate", "train_length", "length", "accuracy",
    "scaled_accuracy", "loss",
)  # fmt: skip
RANGE_COLUMNS = (*LENGTH_COLUMNS[:7], "shortest", *LENGTH_COLUMNS[7:])
METRIC_COLUMNS = (*LENGTH_COLUMNS[:8], "metric", "index", "value")
CURVE_COLUMNS = (
    "id", "study", "task", "model", "seed", "learning_rate", "step", "train_loss", "loss", "accuracy"
)  # fmt: skip
RUN_COLUMNS = ("id", "population", "torch", "statelab", "finished")


@dataclass(frozen=True, kw_only=True)
class Records:
    """What a study's results hold, each read once: the frames of collect, collect_lengths and collect_ranges.

    `runs` has a row per finished lane, columns RUN_COLUMNS: the population it was trained in, versions, date.
    """

    lanes: pd.DataFrame
    lengths: pd.DataFrame
    ranges: pd.DataFrame
    runs: pd.DataFrame


class LaneFolder:
    """The folder of one lane's record."""

    def __init__(self, study: Path, lane_id: str) -> None:
        self.path = study / "lanes" / lane_id
        self.id = lane_id

    def finished(self) -> bool:
        """Whether the lane's result has been committed and can be read."""
        return self.result() is not None

    def result(self) -> dict[str, Any] | None:
        """The committed result, or None where there is none or it cannot be read."""
        found = read_json(self.path / "result.json")
        return found if found is not None and is_result(found) else None

    def spec(self) -> dict[str, Any] | None:
        """The lane's resolved settings, or None."""
        return read_json(self.path / "spec.json")

    def start(self, spec: dict[str, Any], curve: Iterable[dict[str, Any]] = ()) -> None:
        """Begin, or begin again from a checkpoint: settings, and the evaluations made so far."""
        self.path.mkdir(parents=True, exist_ok=True)
        for left in self.path.glob(".*.partial"):
            left.unlink(missing_ok=True)  # by a process that was killed while it wrote
        write_atomically(self.path / "spec.json", _dumps(spec, indent=2))
        write_atomically(self.path / "curve.jsonl", "".join(_dumps(point) + "\n" for point in curve))

    def add_point(self, point: dict[str, Any]) -> None:
        """Append one evaluation to the curve."""
        with (self.path / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(_dumps(point) + "\n")

    def curve(self) -> list[dict[str, Any]]:
        """The evaluations written, by step; a torn last line is left out."""
        try:
            lines = (self.path / "curve.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        points = points_of(lines)
        return list({point["step"]: point for point in points}.values())

    def commit(self, result: dict[str, Any]) -> None:
        """Write the result: from here on the lane is finished."""
        write_atomically(self.path / "result.json", _dumps(result, indent=2))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a power cut, finds the old one or the new one and nothing between."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def lane_folders(study: Path) -> Iterator[LaneFolder]:
    """The lane folders of a study, by id."""
    root = study / "lanes"
    names = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return (LaneFolder(study, name) for name in names)


def collect_all(study: Path) -> Records:
    """Lanes, lengths, ranges and runs in one pass over the results."""
    rows: tuple[list[dict[str, Any]], ...] = ([], [], [], [])
    for lane, result in _present(study):
        rows[0].append({"id": lane.id} | result["row"])
        for kind, found in (("lengths", rows[1]), ("ranges", rows[2])):
            # What was measured beside accuracy can be long, and is read where it is wanted.
            found += [test | {"metrics": None} for test in _tests_of(lane, result, kind)]
        rows[3].append({"id": lane.id} | result.get("run", {}))
    columns = (LANE_COLUMNS, LENGTH_COLUMNS, RANGE_COLUMNS, RUN_COLUMNS)
    lanes, lengths, ranges, runs = map(frame_of, rows, columns)
    return Records(lanes=lanes, lengths=lengths, ranges=ranges, runs=runs)


def collect(study: Path) -> pd.DataFrame:
    """One row per finished lane of the study's present spec, columns LANE_COLUMNS.

    `accuracy` and `loss` are the last evaluation's, at the training length; `escape_step` is the first evaluation
    at or above `threshold`, NaN where there was none; `seconds` is the lane's share of its population's time.
    """
    return frame_of(({"id": lane.id} | result["row"] for lane, result in _present(study)), LANE_COLUMNS)


def collect_lengths(study: Path) -> pd.DataFrame:
    """One row per finished lane and test length, columns LENGTH_COLUMNS."""
    return frame_of(_tests(study, "lengths"), LENGTH_COLUMNS)


def collect_ranges(study: Path) -> pd.DataFrame:
    """One row per finished lane and tested range of lengths, columns RANGE_COLUMNS."""
    return frame_of(_tests(study, "ranges"), RANGE_COLUMNS)


def collect_metrics(study: Path, ids: Collection[str] | None = None) -> pd.DataFrame:
    """What was measured beside accuracy: one row per finished lane, test length, metric and index.

    Columns METRIC_COLUMNS. The index is the position, class or octave of distance that a metric is taken over, 0
    where it is one number; NaN where nothing of that index was scored. Of the lanes `ids` alone, if given.
    """
    parts = (
        (test | {"metric": metric}, {"index": range(len(values)), "value": values})
        for lane, result in _present(study, ids)
        for test in _tests_of(lane, result, "lengths")
        for metric, values in test.get("metrics", {}).items()
    )
    return stacked(parts, METRIC_COLUMNS)


def collect_curves(study: Path, ids: Collection[str] | None = None) -> pd.DataFrame:
    """One row per finished lane and evaluation, columns CURVE_COLUMNS; of the lanes `ids` alone, if given."""
    own = CURVE_COLUMNS[6:]
    curves = ((_key(lane, result), lane.curve()) for lane, result in _present(study, ids))
    parts = ((key, {name: [point.get(name) for point in points] for name in own}) for key, points in curves)
    return stacked(parts, CURVE_COLUMNS)


def study_lanes(study: Path) -> list[str] | None:
    """Ids of the lanes that the study's present spec asks for, or None where none is kept with it."""
    kept = read_study(study)
    return None if kept is None else list(kept["lanes"])


def study_rule(study: Path) -> str | None:
    """How the study's settings were chosen, where it chose them on selection seeds of their own; else None."""
    rule = (read_study(study) or {}).get("rule")
    return rule if isinstance(rule, str) else None


def collect_selection(study: Path) -> pd.DataFrame:
    """One row per finished lane that only served to choose settings, columns LANE_COLUMNS."""
    kept = (read_study(study) or {}).get("selection", [])
    results = ((lane_id, LaneFolder(study, lane_id).result()) for lane_id in kept)
    return frame_of(({"id": i} | result["row"] for i, result in results if result is not None), LANE_COLUMNS)


def _present(study: Path, ids: Collection[str] | None = None) -> Iterator[tuple[LaneFolder, dict[str, Any]]]:
    wanted = study_lanes(study)
    folders = lane_folders(study) if wanted is None else (LaneFolder(study, lane_id) for lane_id in wanted)
    asked = (folder for folder in folders if ids is None or folder.id in ids)
    return ((folder, result) for folder in asked if (result := folder.result()) is not None)


def _tests(study: Path, kind: str) -> Iterator[dict[str, Any]]:
    return (test for lane, result in _present(study) for test in _tests_of(lane, result, kind))


def _tests_of(lane: LaneFolder, result: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    key = _key(lane, result) | {"train_length": result["row"]["length"]}
    return (key | test for test in result.get(kind, []))


def _key(lane: LaneFolder, result: dict[str, Any]) -> dict[str, Any]:
    names = ("study", "task", "model", "seed", "learning_rate")
    return {"id": lane.id} | {name: result["row"][name] for name in names}


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(_plain(value), indent=indent, sort_keys=indent is not None, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value with null for numbers that JSON has no word for: a diverged lane's loss."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
