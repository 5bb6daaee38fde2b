"""Whether what a study's folder holds can be used, after a cut-off copy or an edit by hand. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statelab.sweeps.errors import UserError
from statelab.sweeps.frames import TEXT_COLUMNS

_WORDS = ("study", "task", "model", "status")
_NUMBERS = ("seed", "learning_rate", "threshold", "length")
_MEASURED = ("train_loss", "loss", "accuracy")
_LARGEST_INT = 2**63 - 1
_PLAIN = frozenset({float, type(None)})


def is_result(value: dict[str, Any]) -> bool:
    """Whether a result has the row that every table is made of, tests that are rows, and says how it was run."""
    row = value.get("row")
    if not isinstance(row, dict) or not isinstance(value.get("run", {}), dict):
        return False
    tests = [value.get(kind, []) for kind in ("lengths", "ranges")]
    return (
        all(isinstance(row.get(name), str) for name in _WORDS)
        and all(_is_number(row.get(name)) for name in _NUMBERS)
        and "accuracy" in row
        and all(isinstance(rows, list) and all(map(_is_test, rows)) for rows in tests)
        and all(isinstance(v, str) if k in TEXT_COLUMNS else _is_number_or_none(v) for k, v in row.items())
    )


def is_point(value: Any) -> bool:
    """Whether a line of a curve is an evaluation."""
    if not isinstance(value, dict) or not isinstance(value.get("step"), int) or not _is_number(value["step"]):
        return False
    return _numbers_or_none([value.get(name) for name in _MEASURED])


def read_json(path: Path) -> dict[str, Any] | None:
    """What a JSON file holds, or None where it is not there or no object that can be read."""
    try:
        return _loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def points_of(lines: list[str]) -> list[dict[str, Any]]:
    """The evaluations that can be read; all at once where, as nearly always, that is every line."""
    try:
        points = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        points = [_loads(line) for line in lines]
    return [point for point in points if is_point(point)]


def read_study(folder: Path) -> dict[str, Any] | None:
    """What study.json keeps, or None where there is none. Raises UserError where it cannot be read."""
    path = folder / "study.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise UserError(f"{path} cannot be read ({reason}); statelab run SPEC writes it anew") from None
    lists = [kept.get(name, []) if isinstance(kept, dict) else None for name in ("lanes", "selection")]
    if not all(isinstance(ids, list) and all(map(_is_id, ids)) for ids in lists):
        raise UserError(f"{path} is not as statelab wrote it; statelab run SPEC writes it anew")
    return {"lanes": [], **kept}


def _is_id(value: Any) -> bool:
    # It becomes a folder's name: no way out of the study's own.
    return (
        isinstance(value, str) and value.strip(". ") == value != "" and "/" not in value and "\0" not in value
    )


def _is_test(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(metrics := value.get("metrics", {}), dict):
        return False
    numbers = ("shortest", "accuracy", "scaled_accuracy", "loss")
    return (
        _is_number(value.get("length"))
        and "accuracy" in value
        and _numbers_or_none([value.get(name) for name in numbers])
        and all(isinstance(each, list) and _numbers_or_none(each) for each in metrics.values())
    )


def _numbers_or_none(values: list[Any]) -> bool:
    # A large study has millions of them, of which all but a few are floats.
    return _PLAIN.issuperset(map(type, values)) or all(map(_is_number_or_none, values))


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST_INT
    return isinstance(value, float)


def _loads(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
