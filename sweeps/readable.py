"""Whether what a study's folder holds can be used, after a cut-off copy or an edit by hand. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statelab.sweeps.errors import UserError

_WORDS = ("study", "task", "model", "status")
_NUMBERS = ("seed", "learning_rate", "threshold", "length")


def is_result(value: dict[str, Any]) -> bool:
    """Whether a result has the row that every table is made of, and tests that are rows."""
    row = value.get("row")
    if not isinstance(row, dict):
        return False
    tests = [value.get(kind, []) for kind in ("lengths", "ranges")]
    return (
        all(isinstance(row.get(name), str) for name in _WORDS)
        and all(_is_number(row.get(name)) for name in _NUMBERS)
        and _is_number_or_none(row.get("accuracy", ""))
        and all(isinstance(rows, list) and all(map(_is_test, rows)) for rows in tests)
        and not any(isinstance(item, dict | list) for item in row.values())
    )


def is_point(value: Any) -> bool:
    """Whether a line of a curve is an evaluation."""
    if not isinstance(value, dict) or not isinstance(value.get("step"), int):
        return False
    return all(_is_number_or_none(value.get(name)) for name in ("train_loss", "loss", "accuracy"))


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
    return (
        isinstance(value, dict)
        and _is_number(value.get("length"))
        and _is_number_or_none(value.get("accuracy", ""))
        and isinstance(value.get("metrics", {}), dict)
    )


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
