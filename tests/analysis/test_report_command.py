"""`statelab report`: one study, several, formats, and words that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelab.sweeps.cli import app
from statelab.sweeps.errors import UserError
from tests.analysis.frames import by_length, grid, write_study


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Collection[str]]:
    """Two studies, and the formats that their reports ask figures in; none is drawn."""
    lanes = grid(["parity"], ["gru"], [1e-3], 2, lambda *_: 0.95)
    for name in ("a", "b"):
        write_study(tmp_path / name, lanes.assign(study=name), by_length(lanes, [16]))
    formats: list[Collection[str]] = []

    def studio(wanted: Collection[str]) -> AbstractContextManager[Callable[[object], dict[str, object]]]:
        formats.append(wanted)
        return nullcontext(lambda pieces: {})

    monkeypatch.setattr("statelab.analysis.report.studio", studio)
    return formats


def test_one_study(tmp_path: Path, asked: list[Collection[str]]) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    assert f"page: {tmp_path / 'a' / 'report' / 'report.html'}" in done.output
    assert "100.0" not in done.output
    assert "95.0 (2/2)" in done.output
    assert asked == [("png", "svg", "pdf")]


def test_two_studies_and_a_format(tmp_path: Path, asked: list[Collection[str]]) -> None:
    words = ["report", "a", "b", "--runs", str(tmp_path), "--format", "svg"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "gru [a]" in done.output
    assert (tmp_path / "a" / "report-with-b" / "report.html").exists()
    assert asked == [("svg",)]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "--format", "gif"], "unknown format gif; known: png, svg, pdf"),
        (["a", "a"], "cannot be compared with itself"),
        (["a", "c"], "no study 'c'"),
    ],
)
def test_words_that_are_wrong(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["report", *words, "--runs", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)
