"""The report as one HTML file: nothing is fetched, and it reads in light and dark, wide and narrow, and on paper."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from statelab.analysis.layout import Section
from statelab.analysis.page_style import CSS
from statelab.analysis.pieces import Piece

_LONG = 16
"""Tables with more rows than this are folded away."""


def page(
    *,
    title: str,
    lead: Sequence[str],
    asked: str,
    pieces: Sequence[Piece],
    pictures: Mapping[str, tuple[str, bytes, str]],
    sure: Sequence[str],
    origin: str,
) -> str:
    """The whole document.

    `pictures` has for a piece's name its media type, bytes and alt text; `asked` and `origin` are HTML already, of
    `facts`, `table` and `folded`.
    """
    links = "".join(f'<a href="#{piece.name}">{escape(piece.title)}</a>' for piece in pieces)
    shown = "\n".join(_piece(piece, pictures.get(piece.name)) for piece in pieces)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{_paragraphs(lead)}
<nav>{links}</nav>
</header>
<main>
<section id="asked"><h2>What was asked</h2>
{asked}
</section>
<section id="found"><h2>What came out</h2>
{shown or "<p>Nothing yet.</p>"}
</section>
<section id="sure"><h2>How sure, and how chosen</h2>
{_list(sure)}
</section>
<section id="origin"><h2>Where it comes from</h2>
{origin}
</section>
</main>
</body>
</html>
"""


def _piece(piece: Piece, picture: tuple[str, bytes, str] | None) -> str:
    parts = [f"<h3>{escape(piece.title)}</h3>", f"<p>{escape(piece.about)}</p>"]
    if picture is not None:
        kind, data, alt = picture
        source = f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
        parts.append(f'<figure><img src="{source}" alt="{escape(alt, quote=True)}"></figure>')
    words = "".join(table(section) for section in piece.sections)
    parts.append(f'<div class="words">{words}{_list(piece.notes)}</div>')
    return f'<article id="{piece.name}">\n' + "\n".join(parts) + "\n</article>"


def table(section: Section) -> str:
    """A section as a table; on a narrow screen each row becomes a list of its cells, with their headings."""
    head = "".join(
        f'<th scope="col"{_right(i, section)}>{escape(name)}</th>' for i, name in enumerate(section.header)
    )
    rows = "".join("<tr>" + "".join(_cells(line, section)) + "</tr>" for line in section.rows)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    if len(section.rows) > _LONG:
        return folded(f"{section.title}: {len(section.rows)} rows", whole)
    return f'<div class="table"><p class="caption">{escape(section.title)}</p>{whole}</div>'


def _cells(line: Sequence[str], section: Section) -> list[str]:
    return [
        f'<td data-of="{escape(name or "chosen", quote=True)}"{_right(i, section)}>{escape(cell)}</td>'
        for i, (name, cell) in enumerate(zip(section.header, line, strict=True))
    ]


def _right(i: int, section: Section) -> str:
    return "" if i < section.left else ' class="n"'


def folded(summary: str, inner: str) -> str:
    """Something long behind a line that opens it; printed open."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def facts(pairs: Mapping[str, str]) -> str:
    """Short facts, name by name; those with nothing to say are left out."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs.items() if text
    )
    return f"<dl>{items}</dl>"


def code(text: str) -> str:
    """Text as it is, in a fixed-width face."""
    return f"<pre>{escape(text)}</pre>"


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts if text)


def _list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts if text)
    return f"<ul>{items}</ul>" if items else ""


def as_toml(spec: Mapping[str, Any]) -> str:
    """A study's spec, as kept beside its records, as the TOML file that asks for it again."""
    lines = [f"{key} = {_value(value)}" for key, value in spec.items() if _plain(value)]
    for key, value in spec.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{key}]", *_entries(value)]
        elif isinstance(value, list) and value and not _plain(value):
            for item in value:
                lines += ["", f"[[{key}]]", *_entries(item)]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return value is not None and not any(isinstance(item, Mapping) for item in several)


def _entries(section: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in section.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_entries(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    # A basic string of TOML is one of JSON, and so are its numbers and truth values.
    return json.dumps(value, ensure_ascii=False)
