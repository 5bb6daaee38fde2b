"""Reading a spec file: every mistake at once, each as `file: key.path: what was asked, what holds, what to do`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from statelab.models.config import nearest
from statelab.sweeps.parts import LAYER_SPECS, TASK_SPECS, ModelSpec, StageSpec
from statelab.sweeps.spec import (
    AnnealSpec,
    EvaluationSpec,
    LoggerSpec,
    SearchSpec,
    Spec,
    SweepSpec,
    TrainingSpec,
)

MAX_BYTES = 1_000_000


class SpecError(Exception):
    """A spec that cannot be used; `lines` has one sentence for each mistake."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


def read_spec(path: Path) -> Spec:
    """The spec in a TOML file. Raises SpecError with every mistake found."""
    return parse_spec(_parse(path), str(path))


def parse_spec(data: dict[str, Any], source: str) -> Spec:
    """The spec in a dict as TOML gives it. Raises SpecError with every mistake found."""
    if not data:
        raise SpecError([f"{source}: the spec is empty; it needs name, tasks, models and sweep"])
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError([f"{source}: {line}" for line in sentences(error, data=data)]) from None


def sentences(error: ValidationError, at: Sequence[str | int] = (), data: Any = None) -> list[str]:
    """A sentence for each mistake; `at` is where in a spec the validated part would stand, `data` what it held."""
    items = [item | {"loc": (*at, *item["loc"])} for item in error.errors(include_url=False)]
    # A list whose items are all wrong is empty after validation: its items say so themselves.
    told = [item for item in items if item["type"] != "too_short" or not item["input"]]
    return list(dict.fromkeys(_sentence(item, data) for item in told))


def _parse(path: Path) -> dict[str, Any]:
    text = ""
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise SpecError([f"{path}: this is a directory; name the spec file itself"])
        if size > MAX_BYTES:
            raise SpecError([f"{path}: {size:,} bytes is no spec; a spec has at most {MAX_BYTES:,}"])
        text = path.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise SpecError([f"{path}: there is no such file"]) from None
    except UnicodeDecodeError as error:
        raise SpecError([f"{path}: not UTF-8 text (byte {error.start}); a spec is a TOML file"]) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError([f"{path}: not TOML: {error}{_place(str(error), text)}"]) from None
    except RecursionError:
        raise SpecError([f"{path}: nested too deeply to be a spec"]) from None
    except (OSError, ValueError) as error:
        raise SpecError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from None


def _place(error: str, text: str) -> str:
    """The line of a TOML error as it stands in the file, and the section that it is in."""
    found = re.search(r"line (\d+)", error)
    lines = text.splitlines()
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return ""
    number = int(found[1])
    twice = "; the key stands twice" if "overwrite" in error else ""
    headers = [line.strip() for line in lines[: number - 1] if line.lstrip().startswith("[")]
    section = f" of {_short(headers[-1])[1:-1]}" if headers else ""
    return f": {_short(lines[number - 1].strip())}{section}{twice}"


def _sentence(item: Any, data: Any) -> str:
    raw, kind = list(item["loc"]), item["type"]
    if _is_lone_value(raw, data):
        raw.pop()
    path = _path(raw)
    if kind == "extra_forbidden":
        known = _keys_at(raw[:-1])
        return f"{path}: unknown key; known: {', '.join(known)}.{nearest(str(raw[-1])[:60], known)}"
    if kind == "missing":
        return f"{path}: missing; it has no default"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_kind(path, raw, item)
    message = (
        item["msg"].removeprefix("Value error, ").replace("valid tuple", "list").replace("Tuple", "List")
    )
    if kind == "value_error":
        return f"{path}: {message}" if path else message
    if kind == "string_pattern_mismatch":
        message = "Only letters, digits, '.', '_' and '-' are allowed, first a letter or digit"
    if kind == "literal_error":
        known = [word.strip("'") for word in item["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        message += f".{nearest(item['input'], known)}" if isinstance(item["input"], str) else ""
    return f"{path}: {message[0].lower()}{message[1:]} (got {_short(item['input'])})"


def _unknown_kind(path: str, raw: list[Any], item: Any) -> str:
    key, known = (
        ("task", sorted(TASK_SPECS)) if raw[0] == "tasks" else ("mixer", sorted(set(LAYER_SPECS) - {"own"}))
    )
    given = item["input"]
    if not isinstance(given, dict):
        return f"{path}: must be a table with the key '{key}' (got {_short(given)})"
    if key not in given:
        return f"{path}.{key}: missing; known: {', '.join(known)}"
    name = given[key]
    own = '; your own is "package.module:Class"' if key == "mixer" else ""
    near = nearest(name[:60], known) if isinstance(name, str) else ""
    return f"{path}.{key}: unknown {key} {_short(name)}; known: {', '.join(known)}{own}.{near}"


def _path(raw: list[Any]) -> str:
    text = ""
    for before, part in zip([None, *raw], raw, strict=False):
        if isinstance(part, int):
            text += f"[{part}]"
        elif isinstance(before, int) and (part in TASK_SPECS or part in LAYER_SPECS):
            continue  # the tag of a union, no key of the file
        else:
            word = str(part) if len(str(part)) <= 60 else f"{str(part)[:57]}..."
            text += f".{word}" if text else word
    return text


def _is_lone_value(raw: list[Any], data: Any) -> bool:
    """Whether the path ends in the index of a list of one that the file writes as a single value."""
    match raw:
        case ["sweep", str(key), int()]:
            return isinstance(data, dict) and not isinstance(data["sweep"][key], list)
    return False


def _keys_at(raw: list[Any]) -> list[str]:
    sections: dict[str, Any] = {
        "training": TrainingSpec,
        "evaluation": EvaluationSpec,
        "sweep": SweepSpec,
        "anneal": AnnealSpec,
        "models": ModelSpec,
        "search": SearchSpec,
        "loggers": LoggerSpec,
    }
    model: type[BaseModel] = Spec
    match raw:
        case ["tasks", int(), str(tag)]:
            model = TASK_SPECS[tag]
        case ["tasks", int(), str(), "train", int()]:
            model = StageSpec
        case ["models", int(), "layers", int(), str(tag)]:
            model = LAYER_SPECS[tag]
        case [str(section), *_]:
            model = sections[section]
    return list(model.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
