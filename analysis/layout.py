"""Tables of words, as aligned text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 100
"""Columns of a text table, and of the sentences around it."""

_GAP = "  "
_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    "–": "--",
    "…": r"\dots{}",
    "<": "$<$",
    ">": "$>$",
}
_NARROWEST = 8


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled table: the first `left` columns stand flush left, the others flush right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


def as_text(sections: Sequence[Section], notes: Sequence[str]) -> str:
    """The tables and, below them, the sentences, at most WIDTH columns wide."""
    blocks = [f"{_filled(section.title)}\n\n{_aligned(section)}" for section in sections]
    return "\n\n".join([*blocks, "\n".join(_filled(note, "  ") for note in notes)]).strip("\n") + "\n"


def as_markdown(sections: Sequence[Section], notes: Sequence[str]) -> str:
    """The same as Markdown: a heading and a table each, the sentences as a list."""
    blocks = [f"### {section.title}\n\n{_table(section)}" for section in sections]
    return "\n\n".join([*blocks, "\n".join(f"- {note}" for note in notes)]).strip("\n") + "\n"


def as_latex(sections: Sequence[Section], notes: Sequence[str]) -> str:
    """The same as LaTeX: a table of booktabs each, the sentences as comments."""
    blocks = ["% needs \\usepackage{booktabs}", *(_tabular(section) for section in sections)]
    return "\n\n".join([*blocks, "\n".join(f"% {note}" for note in notes)]).strip("\n") + "\n"


def _tabular(section: Section) -> str:
    columns = "l" * section.left + "r" * (len(section.header) - section.left)
    header, *rows = (" & ".join(map(_tex, line)) + r" \\" for line in (section.header, *section.rows))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(section.title)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def fitting(lines: Sequence[Sequence[str]], first: int) -> list[list[int]]:
    """The columns 1, 2, ... of these lines in groups that fit WIDTH beside a first column `first` wide."""
    groups: list[list[int]] = []
    room = 0
    for i in range(1, len(lines[0])):
        width = len(_GAP) + max(len(line[i]) for line in lines)
        if not groups or width > room:
            groups.append([])
            room = WIDTH - first
        groups[-1].append(i)
        room -= width
    return groups


def _aligned(section: Section) -> str:
    lines = [section.header, *section.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(section.header))]
    _narrow(widths, section.left)
    return "\n".join(text for line in lines for text in _broken(line, widths, section.left))


def _narrow(widths: list[int], left: int) -> None:
    """Take what exceeds WIDTH from the widest of the left columns, whose cells are then broken over lines."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - WIDTH
    for _ in range(excess):
        widest = max(range(left), key=widths.__getitem__)
        widths[widest] = max(widths[widest] - 1, _NARROWEST)


def _broken(line: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
    texts = []
    for k in range(max(len(cell) for cell in cells)):
        parts = [cell[k] if k < len(cell) else "" for cell in cells]
        padded = [
            part.ljust(width) if i < left else part.rjust(width)
            for i, (part, width) in enumerate(zip(parts, widths, strict=True))
        ]
        texts.append(_GAP.join(padded).rstrip())
    return texts


def _table(section: Section) -> str:
    rule = [":--" if i < section.left else "--:" for i in range(len(section.header))]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (section.header, *section.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
