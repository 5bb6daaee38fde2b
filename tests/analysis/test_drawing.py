"""One figure into files."""

from __future__ import annotations

import io

import numpy as np
import pytest
import seaborn as sns
from matplotlib.figure import Figure
from PIL import Image

from statelab.analysis import drawing
from statelab.analysis.style import new_figure
from statelab.analysis.whitegrid import FONT, PALETTE, SIZES, STYLE


def plain() -> Figure:
    figure = new_figure(3, 2, "a line that rises")
    axes = figure.subplots()
    axes.plot([0, 1000])
    axes.set(xlabel="step", ylabel="value", title="title")
    return figure


def pixels(png: bytes) -> np.ndarray:
    found: np.ndarray = np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=np.int64)
    return found


def test_a_figure_too_large_as_svg_is_shown_as_png(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_LARGEST_SVG", 100)
    picture = drawing.picture_of("a", plain, ["svg"])
    assert (picture.shown, picture.kind) == ("png", "image/png")
    assert picture.files["png"].startswith(b"\x89PNG")


def test_files_of_one_figure_are_the_same_every_time() -> None:
    once, again = (drawing.picture_of("a", plain, drawing.FORMATS).files for _ in range(2))
    assert set(once) == {"png", "svg", "pdf"}
    assert once == again


def test_files_say_in_words_what_they_show() -> None:
    picture = drawing.picture_of("a", plain, drawing.FORMATS)
    assert picture.alt == "a line that rises"
    for data in (picture.files["svg"], picture.files["pdf"], picture.files["png"]):
        assert b"a line that rises" in data


def test_what_is_drawn_is_what_savefig_draws() -> None:
    """The canvas is asked without savefig, and with labels that are held in place: nothing may move by that."""
    figure, saved = plain(), io.BytesIO()
    figure.dpi = 72
    with drawing.unhinted():
        figure.savefig(saved, format="png", dpi=drawing.DOTS_PER_INCH)
    ours = pixels(drawing.picture_of("a", plain, ["png"]).files["png"])
    theirs = pixels(saved.getvalue())
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs) > 60).mean() < 0.002


def test_the_style_is_seaborns() -> None:
    seaborns = {**sns.axes_style("whitegrid"), **sns.plotting_context("paper")}
    # What we draw otherwise: a paler grid, our sizes, one font, titles that stay, dollars in names that are dollars.
    # And every colour map is named.
    ours = {"grid.color", "axes.titley", "text.parse_math", "image.cmap", *SIZES, *FONT}
    assert set(STYLE) - ours == set(seaborns) - ours
    for name in set(STYLE) - ours:
        expected = seaborns[name]
        assert STYLE[name] == (pytest.approx(expected) if isinstance(expected, float) else expected), name
    assert list(PALETTE) == sns.color_palette("colorblind").as_hex()
