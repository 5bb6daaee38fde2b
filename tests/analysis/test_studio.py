"""Pieces drawn by this process or by others, which may be lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from statelab.analysis.pieces import Piece
from statelab.analysis.studio import studio
from statelab.analysis.style import new_figure

MINE = os.getpid()


def plain() -> Figure:
    figure = new_figure(2, 1, f"drawn by {os.getpid()}")
    figure.subplots().plot([0, 1])
    return figure


def fail() -> Figure:
    raise RuntimeError("no such figure")


def killed() -> Figure:
    """Drawn by the process that started alone."""
    if os.getpid() != MINE:
        os._exit(9)
    return plain()


def met(folder: Path, other: str, mine: str) -> Figure:
    """Two that wait for each other are drawn at one time, or never."""
    (folder / mine).touch()
    for _ in range(2000):
        if (folder / other).exists():
            return plain()
        time.sleep(0.01)
    raise RuntimeError("nobody else draws")


def piece(name: str, draw: Callable[[], Figure] | None = plain) -> Piece:
    return Piece(name=name, title=name, about="", draw=draw)


@pytest.fixture(params=[False, True], ids=["here", "forked"])
def forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("statelab.analysis.studio._may_fork", lambda: request.param)
    return bool(request.param)


def test_pieces_are_drawn_in_order_whoever_draws_them(forked: bool) -> None:
    with studio(["png", "pdf"]) as draw:
        pictures = draw([piece("a"), piece("curves"), piece("words only", None), piece("c")])
    assert list(pictures) == ["a", "curves", "c"]
    assert {kind for picture in pictures.values() for kind in picture.files} == {"svg", "png", "pdf"}
    assert all(picture.alt.encode() in picture.files["svg"] for picture in pictures.values())
    assert (f"drawn by {MINE}" in {picture.alt for picture in pictures.values()}) is not forked


def test_two_processes_draw_at_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statelab.analysis.studio._may_fork", lambda: True)
    pair = [piece("a", partial(met, tmp_path, "b", "a")), piece("b", partial(met, tmp_path, "a", "b"))]
    with studio(["png"]) as draw:
        drawn = draw(pair)
    assert len({drawn[name].alt for name in ("a", "b")} - {f"drawn by {MINE}"}) == 2


@pytest.mark.usefixtures("forked")
def test_a_figure_that_cannot_be_drawn_is_told() -> None:
    with pytest.raises(RuntimeError, match="no such figure"), studio(["png"]) as draw:
        draw([piece("a"), piece("b", fail)])


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_processes_that_are_lost_are_made_up_for(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statelab.analysis.studio._may_fork", lambda: True)
    pieces = [piece(name, killed if i < lost else plain) for i, name in enumerate("abc")]
    with studio(["png"]) as draw:
        pictures = draw(pieces)
    assert list(pictures) == ["a", "b", "c"]
    assert pictures["a"].alt == f"drawn by {MINE}"


@pytest.mark.usefixtures("forked")
def test_nothing_needs_to_be_drawn() -> None:
    with studio(["png"]) as draw:
        assert draw([piece("words only", None)]) == {}
    with pytest.raises(ValueError, match="no records"), studio(["png"]):
        raise ValueError("no records")
