"""Pydantic models made from the frozen dataclasses of tasks, mixers and settings.

The dataclasses are the one place that says which fields exist; their own __post_init__ says which values work.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Strict, create_model
from pydantic import Field as PydanticField


class StrictModel(BaseModel):
    """Base of everything read from a spec: frozen, and no key is dropped in silence."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _no_negative_zero(value: float) -> float:
    # It equals 0 and is written otherwise: a lane would have two ids.
    if value == 0 and math.copysign(1, value) < 0:
        raise ValueError("negative zero is written 0")
    return value


LARGEST_INT = 2**32
LARGEST_NUMBER = 1e9
"""Bounds that catch slips of the finger in every number of a spec."""
StrictNumber = Annotated[
    float,
    Strict(),
    PydanticField(allow_inf_nan=False, ge=-LARGEST_NUMBER, le=LARGEST_NUMBER),
    AfterValidator(_no_negative_zero),
]
StrictInt = Annotated[int, Strict(), PydanticField(ge=-LARGEST_INT, le=LARGEST_INT)]
StrictStr = Annotated[str, Strict()]
_STRICT: dict[Any, Any] = {
    int: StrictInt,
    float: StrictNumber,
    str: StrictStr,
    bool: Annotated[bool, Strict()],
    types.NoneType: None,
}


def strict(hint: Any) -> Any:
    """A type hint of plain values under which "64" is not 64 and true is not 1.

    Raises TypeError for hints that a spec cannot hold.
    """
    if hint in _STRICT:
        return _STRICT[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return strict(args[0])
    if origin is Literal:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(strict(arg) for arg in args)]  # noqa: UP007 - built from a list
    if origin is tuple:
        return tuple[tuple(arg if arg is Ellipsis else strict(arg) for arg in args)]  # type: ignore[misc]
    raise TypeError(f"a config field of type {hint} cannot be read from a spec")


def model_of(
    name: str,
    source: type,
    *,
    base: type[StrictModel] = StrictModel,
    leave: frozenset[str] = frozenset(),
    given: Mapping[str, Any] | None = None,
    many: bool = False,
) -> type[Any]:
    """The pydantic model of a dataclass's fields.

    `leave` names fields not read from the spec. Where `given` is there, each value is tried by itself in
    `source(**given, field=value)`, so that its own mistake is told under its own key: for dataclasses whose fields
    do not depend on one another. With `many`, each field takes one value or a list of different values.
    """
    hints = get_type_hints(source)
    made: dict[str, Any] = {}
    for item in fields(source):
        if item.name in leave:
            continue
        hint: Any = strict(hints[item.name])
        if given is not None:
            hint = Annotated[hint, AfterValidator(_tried(source, item.name, dict(given)))]
        if many:
            hint = Annotated[
                types.GenericAlias(tuple, (hint, ...)),
                BeforeValidator(_as_list),
                PydanticField(min_length=1),
                AfterValidator(_different),
            ]
        made[item.name] = (hint, _default(item, many))
    return create_model(name, __base__=base, **made)


def _default(item: Field[Any], many: bool) -> Any:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    if default is MISSING:
        return ...
    return (default,) if many else default


def _tried(source: type, name: str, given: dict[str, Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        source(**(given | {name: value}))
        return value

    return check


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} stands in the list more than once")
    return values
