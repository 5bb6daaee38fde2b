"""Pieces drawn into files, by this process or by two."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from statelab.analysis import drawing
from statelab.analysis.pieces import Piece
from statelab.analysis.style import new_figure


def piece(name: str, draw: Callable[[], Figure] | None = None) -> Piece:
    def plain() -> Figure:
        figure = new_figure(2, 1, f"drawn by {os.getpid()}")
        figure.subplots().plot([0, 1])
        return figure

    return Piece(name=name, title=name, about="", draw=draw or plain)


@pytest.mark.parametrize("forked", [False, True])
def test_pieces_are_drawn_in_order_whoever_draws_them(forked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_may_fork", lambda: forked)
    pieces = [piece("a"), piece("b"), Piece(name="words only", title="", about=""), piece("c")]
    pictures = drawing.drawn(pieces, ["png", "pdf"])
    assert list(pictures) == ["a", "b", "c"]
    assert {kind for picture in pictures.values() for kind in picture.files} == {"svg", "png", "pdf"}
    assert len({picture.alt for picture in pictures.values()}) == (2 if forked else 1)
    assert all(picture.alt.encode() in picture.files["svg"] for picture in pictures.values())


@pytest.mark.parametrize("forked", [False, True])
def test_a_figure_that_cannot_be_drawn_is_told(forked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Figure:
        raise RuntimeError("no such figure")

    monkeypatch.setattr(drawing, "_may_fork", lambda: forked)
    with pytest.raises(RuntimeError, match="no such figure"):
        drawing.drawn([piece("a"), piece("b", fail)], ["png"])


def test_a_child_that_is_lost_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.getpid()

    def killed() -> Figure:
        if os.getpid() != mine:
            os._exit(9)
        figure = new_figure(2, 1, "drawn after all")
        figure.subplots()
        return figure

    monkeypatch.setattr(drawing, "_may_fork", lambda: True)
    assert drawing.drawn([piece("a"), piece("b", killed)], ["png"])["b"].alt == "drawn after all"


def test_a_figure_too_large_as_svg_is_shown_as_png(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_LARGEST_SVG", 100)
    (picture,) = drawing.drawn([piece("a")], ["svg"]).values()
    assert (picture.shown, picture.kind) == ("png", "image/png")
    assert picture.files["png"].startswith(b"\x89PNG")


def test_files_of_one_figure_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_may_fork", lambda: False)
    once, again = (drawing.drawn([piece("a")], drawing.FORMATS)["a"].files for _ in range(2))
    assert once["png"] == again["png"]
    assert once["pdf"] == again["pdf"]
    assert once["svg"] == again["svg"]
