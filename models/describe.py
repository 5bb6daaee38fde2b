"""What there is to know about each mixer of the registry, read without importing torch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from statelab.models import MIXERS
from statelab.models.config import config_class


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field of a config: `kind` is its type as written, or its values where `is_choice`; `help` what it does."""

    name: str
    kind: str
    default: Any
    help: str
    is_choice: bool = False


@dataclass(frozen=True, kw_only=True)
class Description:
    """A mixer of the registry: one line of what it is, where it comes from, and its options."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]


def describe_mixers() -> list[Description]:
    """One description for each mixer, in the registry's order."""
    return [describe_mixer(name) for name in MIXERS]


def describe_mixer(name: str) -> Description:
    """Summary and source are the first line and the `Source:` paragraph of the config's docstring."""
    made = config_class(name)
    summary, _, rest = (inspect.getdoc(made) or "").partition("\n")
    source = " ".join(rest.partition("Source:")[2].split())
    return Description(name=name, summary=summary, source=source, options=options_with_help(made))


def options_with_help(source: type) -> tuple[Option, ...]:
    """The fields of a dataclass of a mixer or task, each an `Annotated[type, "what it does"]`."""
    hints = get_type_hints(source, include_extras=True)
    return tuple(_option(field.name, hints[field.name], field.default) for field in fields(source))


def _option(name: str, hint: Any, default: Any) -> Option:
    bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    choices = get_args(bare)
    kind = " | ".join(repr(choice) for choice in choices) if choices else str(getattr(bare, "__name__", bare))
    return Option(
        name=name,
        kind=kind,
        default=default,
        help=str(notes[0]) if notes else "",
        is_choice=get_origin(bare) is Literal,
    )
