"""Pieces drawn into files' bytes, on two cores where that is safe."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from statelab.analysis.pieces import Piece

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 160
_LARGEST_SVG = 600_000
"""Bytes beyond which a page shows the PNG instead."""
_TYPES = {"svg": "image/svg+xml", "png": "image/png"}
_TALLEST = 60_000
"""Pixels: Agg draws none taller than 2^16."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A piece's figure: its files' bytes by format, what it shows in words, and which of them a page shows."""

    name: str
    files: Mapping[str, bytes]
    alt: str
    shown: str

    @property
    def kind(self) -> str:
        """The media type of what a page shows."""
        return _TYPES[self.shown]


def drawn(pieces: Sequence[Piece], formats: Collection[str]) -> dict[str, Picture]:
    """The pictures of those pieces that have one, by name, in `formats` beside what a page needs."""
    wanted = [piece for piece in pieces if piece.draw is not None]
    if len(wanted) < 2 or not _may_fork():
        pictures = [_draw(piece, formats) for piece in wanted]
    else:
        pictures = _forked(wanted, formats)
    return {picture.name: picture for picture in pictures}


def _draw(piece: Piece, formats: Collection[str]) -> Picture:
    from matplotlib import rc_context

    # Letters that are not hinted are as wide in every format, so that one layout fits all; ids of SVG elements
    # that are salted alike make equal figures equal files.
    with rc_context({"text.hinting": "none", "svg.hashsalt": "statelab"}):
        return _drawn_alike(piece, formats)


def _drawn_alike(piece: Piece, formats: Collection[str]) -> Picture:
    assert piece.draw is not None
    figure = piece.draw()
    # Every file has one layout: finding it takes longer than drawing, and saving would find it anew each time.
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    figure.set_layout_engine("none")
    files = {"svg": _bytes(figure, "svg")}
    shown = "svg" if len(files["svg"]) <= _LARGEST_SVG else "png"
    for kind in dict.fromkeys([*formats, shown]):
        if kind != "svg":
            files[kind] = _bytes(figure, kind)
    return Picture(name=piece.name, files=files, alt=str(figure.get_label()), shown=shown)


def _bytes(figure: Any, kind: str) -> bytes:
    described = {
        "png": {"Description": figure.get_label()},
        "svg": {"Description": figure.get_label(), "Date": None},
        "pdf": {"Subject": figure.get_label(), "CreationDate": None},
    }
    dpi = min(DOTS_PER_INCH, _TALLEST / max(figure.get_size_inches()))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=described[kind])
    return buffer.getvalue()


def _may_fork() -> bool:
    """Whether a fork is safe and gains something: not beside torch's threads or a graphics card's state."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return cores > 1 and sys.platform == "linux" and "torch" not in sys.modules


def _forked(pieces: Sequence[Piece], formats: Collection[str]) -> list[Picture]:
    # Imported before the fork, so that both sides have it.
    import statelab.analysis.style  # noqa: F401

    context = multiprocessing.get_context("fork")
    mine, theirs = pieces[::2], pieces[1::2]
    ours, other = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; those of the numerical libraries wait, and the child calls none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_send, args=(other, theirs, formats), daemon=True)
        child.start()
    other.close()
    pictures = {piece.name: _draw(piece, formats) for piece in mine}
    try:
        pictures |= {picture.name: picture for picture in ours.recv()}
    except EOFError:
        # The child was lost, to a lack of memory perhaps: what it owed is drawn here, or says why it cannot be.
        pictures |= {piece.name: _draw(piece, formats) for piece in theirs}
    child.join()
    return [pictures[piece.name] for piece in pieces]


def _send(pipe: Any, pieces: Sequence[Piece], formats: Collection[str]) -> None:
    try:
        pipe.send([_draw(piece, formats) for piece in pieces])
    except Exception:
        # Nothing sent is what the parent notices.
        pipe.close()
