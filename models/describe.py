"""What there is to know about each mixer of the registry, read without importing torch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from statelab.models import MIXERS
from statelab.models.config import config_class


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field of a mixer's config: `kind` is its type as written, `help` what it does."""

    name: str
    kind: str
    default: Any
    help: str


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
    hints = get_type_hints(made, include_extras=True)
    options = (
        Option(
            name=field.name,
            kind=_kind(hints[field.name]),
            default=field.default,
            help=_help(hints, field.name),
        )
        for field in fields(made)
    )
    return Description(name=name, summary=summary, source=source, options=tuple(options))


def _kind(hint: Any) -> str:
    bare = hint.__origin__
    choices = getattr(bare, "__args__", ())
    return " | ".join(repr(choice) for choice in choices) if choices else str(bare.__name__)


def _help(hints: dict[str, Any], name: str) -> str:
    return str(hints[name].__metadata__[0])
