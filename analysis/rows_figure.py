"""Rows of a task as a picture: tokens as coloured cells, what is scored framed, its answer beneath.

What matters is told by frames, and by words where there is room; hues, from a palette that colour-blind people
can tell apart, repeat which kind a token is, and how pale they are tells ids of one kind apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from statelab.analysis.rows_lines import LARGEST_WRITTEN, Layout, alt_text, checked, laid_out
from statelab.analysis.style import styled

Colour = tuple[float, float, float]

_NARROWEST = 4.2
_LETTERS_PER_INCH = 13
_ENTRY = 1.1
"""Inches of an entry of the legend."""

_WHITE: Colour = (1.0, 1.0, 1.0)
_EMPTY = frozenset({"pad", "blank", "zero"})
_IRRELEVANT = frozenset({"filler", "noise"})
# The palette without its grey, which stands for noise, strongest first.
_HUES = (0, 1, 2, 4, 9, 3, 8, 5, 6)
_SCORED = "scored, answer beneath"


@styled
def rows_figure(
    inputs: Any,
    targets: Any,
    kinds: Mapping[str, range],
    name: str,
    describe: Callable[[int], str] = str,
) -> Figure:
    """Rows of token ids, nested lists or arrays `[rows, T]`, under the title `name`; a hue for each kind.

    Targets of 0 or more are scored: the cell has a frame, and the answer stands beneath it. Up to T = 48
    tokens and answers are written, as `describe` has them; longer rows are folded and show answers as bars of
    their colour. Nine kinds differ in hue, beside the greys of padding and of noise; more would share them.
    `figure.get_label()` is a sentence for those who cannot see it, and `write_rows` puts it into the file.

    Raises ValueError for shapes that differ or are not `[rows, T]`, and for tokens of no kind.
    """
    inputs_BT, targets_BT = checked(inputs, targets, kinds)
    colours = colours_of_tokens(kinds)
    shown = {*inputs_BT.flatten().tolist(), *targets_BT[targets_BT >= 0].tolist()}
    words = {x: describe(x) for x in shown} if inputs_BT.shape[1] <= LARGEST_WRITTEN else None
    layout = laid_out(inputs_BT, targets_BT, None if words is None else max(map(len, words.values())))
    wide = max(layout.cell * layout.width, _NARROWEST) + 0.8
    figure = Figure(figsize=(wide, layout.cell_height * layout.height + 1.4), layout="constrained")
    figure.set_label(alt_text(inputs_BT, targets_BT, kinds, name))
    axes = figure.subplots()
    _frame(axes, layout)
    _draw(axes, layout, colours)
    if words is not None:
        _write(axes, layout, colours, words)
    axes.set_title(textwrap.fill(name, int(_LETTERS_PER_INCH * wide)), loc="left")
    _legend(figure, kinds, colours, int(wide / _ENTRY))
    return figure


def write_rows(figure: Figure, path: Any, dpi: int = 100) -> None:
    """Write a figure of `rows_figure` to a PNG or SVG file, its sentence in the file's description."""
    figure.savefig(path, dpi=dpi, metadata={"Title": "rows of a task", "Description": figure.get_label()})


def colours_of_tokens(kinds: Mapping[str, range]) -> list[Colour]:
    """A colour of each token, its kind's hue: from pale for the first of its ids to full for the last."""
    hues = cycle(sns.color_palette("colorblind")[i] for i in _HUES)
    colours: list[Colour] = []
    for kind, ids in kinds.items():
        if kind in _EMPTY:
            ends = ((0.95,) * 3, (0.95,) * 3)
        elif kind in _IRRELEVANT:
            ends = ((0.86,) * 3, (0.66,) * 3)
        else:
            full = to_rgb(next(hues))
            ends = (full if len(ids) == 1 else _mixed(full, _WHITE, 0.55), full)
        last = max(len(ids) - 1, 1)
        colours += [_mixed(*ends, i / last) for i in range(len(ids))]
    return colours


def _mixed(a: Colour, b: Colour, share: float) -> Colour:
    red, green, blue = ((1 - share) * x + share * y for x, y in zip(a, b, strict=True))
    return red, green, blue


def _frame(axes: Axes, layout: Layout) -> None:
    axes.set_xlim(-0.6, layout.width - 0.4)
    axes.set_ylim(layout.height, -0.2)
    names = [f"row {line.row}" if line.start == 0 else f"from {line.start}" for line in layout.lines]
    axes.set_yticks([line.top + 0.5 for line in layout.lines], names)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("place in the line" if any(line.start for line in layout.lines) else "place")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw(axes: Axes, layout: Layout, colours: Sequence[Colour]) -> None:
    """Cells, the frames of those that are scored, and beneath them boxes in the answers' colours."""
    edge = min(6 * layout.cell, 1.4)
    tokens = [(t, line.top, x) for line in layout.lines for t, x in line.tokens]
    answers = [(t, line.top, x) for line in layout.lines for t, x in line.answers]
    cells = [Rectangle((t - 0.5, top), 1, 1) for t, top, _ in tokens]
    boxes = [Rectangle((t - 0.5, top + 1.1), 1, layout.beneath - 0.1) for t, top, _ in answers]
    frames = [Rectangle((t - 0.5, top), 1, 1) for t, top, _ in answers]
    faces = [colours[x] for _, _, x in (*tokens, *answers)]
    axes.add_collection(PatchCollection([*cells, *boxes], facecolor=faces, edgecolor="white", lw=edge / 3))
    axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor="black", lw=edge, zorder=3))


def _write(axes: Axes, layout: Layout, colours: Sequence[Colour], words: Mapping[int, str]) -> None:
    size = min(8.0, 72 * layout.cell / (0.7 * max(map(len, words.values()))))
    for line in layout.lines:
        heights = [(*each, 0.5) for each in line.tokens]
        heights += [(*each, 1.1 + (layout.beneath - 0.1) / 2) for each in line.answers]
        for t, x, middle in heights:
            ink = "white" if _is_dark(colours[x]) else "black"
            axes.text(t, line.top + middle, words[x], size=size, color=ink, ha="center", va="center_baseline")


def _is_dark(colour: Colour) -> bool:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def _legend(figure: Figure, kinds: Mapping[str, range], colours: Sequence[Colour], columns: int) -> None:
    # A tuple of patches, drawn side by side, is what the stubs leave out.
    handles: list[Any] = [
        tuple(Patch(facecolor=colours[i], edgecolor="0.6", lw=0.4) for i in sorted({ids.start, ids.stop - 1}))
        for ids in kinds.values()
    ]
    handles.append(Patch(facecolor="none", edgecolor="black", lw=1.2))
    figure.legend(
        handles,
        [*kinds, _SCORED],
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        loc="outside lower center",
        ncols=-(-len(handles) // -(-len(handles) // columns)),
        fontsize=8,
        frameon=False,
        columnspacing=1.2,
    )
