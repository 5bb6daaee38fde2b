"""A figure into the bytes of its files, with one layout for all of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelab.analysis.whitegrid import FONT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def picture_of(name: str, draw: Callable[[], Figure], formats: Collection[str]) -> Picture:
    """What `draw` draws, in `formats` beside what a page needs."""
    with unhinted():
        return _drawn_alike(name, draw(), formats)


def unhinted() -> AbstractContextManager[None]:
    """Letters that are not hinted are as wide in every format, so that one layout fits all.

    Ids of SVG elements that are salted alike make equal figures equal files.
    """
    from matplotlib import rc_context

    return rc_context(FONT | {"text.hinting": "none", "svg.hashsalt": "statelab"})


def _drawn_alike(name: str, figure: Figure, formats: Collection[str]) -> Picture:
    _lay_out(figure)
    files = {"svg": _bytes(figure, "svg")}
    _hold_labels(figure)
    shown = "svg" if len(files["svg"]) <= _LARGEST_SVG else "png"
    for kind in dict.fromkeys([*formats, shown]):
        if kind != "svg":
            files[kind] = _bytes(figure, kind)
    return Picture(name=name, files=files, alt=str(figure.get_label()), shown=shown)


def _lay_out(figure: Figure) -> None:
    """One layout for every file: finding it takes longer than drawing, and saving would find it anew each time."""
    # At the resolution of SVG and PDF it measures the words as these will.
    figure.dpi = 72
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    figure.set_layout_engine("none")


def _hold_labels(figure: Figure) -> None:
    """Leave the axes' labels where the first drawing put them; each drawing would seek their places anew."""
    inches = figure.transFigure.inverted()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            label = axis.label
            x, y = inches.transform(label.get_transform().transform(label.get_position()))
            axis.set_label_coords(x, y, transform=figure.transFigure)


def _bytes(figure: Figure, kind: str) -> bytes:
    """One file. The canvas is asked directly: Figure.savefig draws everything twice, first to lay it out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    alt, buffer, text = str(figure.get_label()), io.BytesIO(), io.StringIO()
    # The vector formats take this as the resolution of what is pixels in them, and set their own.
    figure.dpi = min(DOTS_PER_INCH, _TALLEST / max(figure.get_size_inches()))
    if kind == "png":
        # Level 3 is quicker than the usual 6, and lines on white come out smaller.
        FigureCanvasAgg(figure).print_png(
            buffer, metadata={"Description": alt}, pil_kwargs={"compress_level": 3}
        )
    elif kind == "svg":
        FigureCanvasSVG(figure).print_svg(text, metadata={"Description": alt, "Date": None})
        return text.getvalue().encode("utf-8")
    else:
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        FigureCanvasPdf(figure).print_pdf(buffer, metadata={"Subject": alt, "CreationDate": None})
    return buffer.getvalue()
