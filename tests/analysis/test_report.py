from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

import statelab.analysis
from statelab.analysis.drawing import FORMATS
from statelab.analysis.report import FILES, WORDS, write_comparison, write_report
from tests.analysis.frames import by_length, grid, write_study

PIECES = ("solved", "success", "differences", "lengths", "lengths_scaled", "lengths_exact", "time",
    "thresholds", "rates", "capacity", "curves", "ranges", "metrics")  # fmt: skip


def study(
    folder: Path,
    seeds: int = 2,
    accuracy: float | None = 1.0,
    lengths: tuple[int, ...] = (16, 32),
    models: tuple[str, ...] = ("gru", "rnn"),
) -> Path:
    lanes = grid(["parity", "mod 5"], models, [1e-3, 1e-2], seeds, lambda *_: accuracy)
    return write_study(folder, lanes.assign(study=folder.name), by_length(lanes, lengths))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of a report's time and have tests of their own."""
    monkeypatch.setattr("statelab.analysis.report.studio", lambda formats: nullcontext(lambda pieces: {}))


def test_a_report_writes_every_piece_and_nothing_else(tmp_path: Path) -> None:
    report = write_report(study(tmp_path / "s"))
    pictures = {f"{name}.{kind}" for name in PIECES for kind in FORMATS}
    words = {f"{name}.{kind}" for name in (*PIECES, "pairs") for kind in WORDS}
    whole = {"report.html", "table.txt", "table.csv", "table.md", "table.tex"}
    assert set(report.files) == pictures | words | whole
    assert {path.name for path in report.folder.iterdir()} == set(report.files) <= set(FILES)
    assert report.files["table.txt"].read_text(encoding="utf-8") == report.text
    assert report.files["solved.png"].read_bytes().startswith(b"\x89PNG")
    assert report.files["solved.pdf"].read_bytes().startswith(b"%PDF")
    assert "<svg" in report.files["solved.svg"].read_text(encoding="utf-8")
    assert report.findings is not None
    for name, rows in (("table", 8), ("differences", 2), ("lengths", 8), ("time", 4), ("capacity", 4)):
        assert len(pd.read_csv(report.files[f"{name}.csv"])) == rows, name
    assert pd.read_csv(report.files["table.csv"])["chosen"].sum() == 4
    page = report.files["report.html"].read_text(encoding="utf-8")
    assert page.count('<img src="data:image/') == page.count('" alt="') == len(PIECES)


def test_formats_can_be_chosen(tmp_path: Path) -> None:
    lanes = grid(["parity"], ["gru"], [1e-3], 1, lambda *_: 0.95)
    folder = write_study(tmp_path / "s", lanes, by_length(lanes, []))
    (folder / "report").mkdir()
    (folder / "report" / "solved.png").write_bytes(b"old")
    files = write_report(folder, formats=["svg"]).files
    assert "solved.svg" in files
    assert not {"solved.png", "solved.pdf"} & set(files)
    assert not (folder / "report" / "solved.png").exists()
    with pytest.raises(ValueError, match="unknown format gif; known: png, svg, pdf"):
        write_report(folder, formats=["gif"])


@pytest.mark.usefixtures("undrawn")
def test_an_empty_study_says_so_and_leaves_no_old_figure(tmp_path: Path) -> None:
    folder = write_report(study(tmp_path / "s")).folder
    (folder / "solved.png").write_bytes(b"old")
    for result in (tmp_path / "s" / "lanes").glob("*/result.json"):
        result.unlink()
    report = write_report(tmp_path / "s")
    assert report.text == "No lane of this study has finished yet, so there is nothing to report.\n"
    assert report.findings is None
    assert {path.name for path in folder.iterdir()} == {"report.html", "table.txt", "table.md"}
    assert "No lane of this study has finished yet" in report.files["report.html"].read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("seeds", "accuracy", "lengths", "sentence"),
    [
        (1, 0.95, (16, 32), "All lanes have one seed"),
        (2, None, (16, 32), "Every lane diverged (16 lanes)."),
        (2, None, (16, 32), "No lane reached the threshold, so there is no time to solve."),
        (2, 1.0, (16, 32), "Every lane solved its task"),
        (2, 0.5, (16,), "One length only was tested, 16"),
        (2, 0.5, (), "No accuracy by length was recorded"),
    ],
)
def test_studies_with_little_to_show(
    tmp_path: Path, seeds: int, accuracy: float | None, lengths: tuple[int, ...], sentence: str
) -> None:
    report = write_report(study(tmp_path / "s", seeds, accuracy, lengths))
    assert sentence in " ".join(report.text.split())
    assert ("lengths.csv" in report.files) == (accuracy is not None and lengths != ())


@pytest.mark.parametrize("accuracy", [0.95, None], ids=["finished", "diverged"])
def test_one_lane_is_drawn_without_nonsense(tmp_path: Path, accuracy: float | None) -> None:
    lanes = grid(["parity"], ["gru"], [1e-3], 1, lambda *_: accuracy)
    report = write_report(write_study(tmp_path / "s", lanes, by_length(lanes, [16])), formats=["png"])
    assert "One lane has finished." in report.text
    drawn = {name for name in report.files if name.endswith(".png")}
    always = {"solved.png", "time.png", "thresholds.png", "capacity.png"}
    measured = {
        "lengths.png",
        "curves.png",
        "ranges.png",
        "metrics.png",
    }
    assert drawn == (always if accuracy is None else always | measured)


@pytest.mark.usefixtures("undrawn")
def test_unfinished_lanes_of_the_spec_are_counted(tmp_path: Path) -> None:
    folder = study(tmp_path / "s")
    ids = [path.name for path in (folder / "lanes").iterdir()]
    (folder / "study.json").write_text(
        f'{{"lanes": {[*ids, "another"]}}}'.replace("'", '"'), encoding="utf-8"
    )
    assert "So far 16 of 17 lanes have finished." in write_report(folder).text


def test_no_such_study(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no study at .*nowhere"):
        write_report(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = study(tmp_path / "s", seeds=1)
    (folder / "report").mkdir()
    (folder / "report" / "solved.png").write_bytes(b"old")

    def torn(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.draw", torn)
    with pytest.raises(OSError, match="no space left"):
        write_report(folder)
    assert (folder / "report" / "solved.png").read_bytes() == b"old"
    assert not list((folder / "report").glob(".*"))


@pytest.mark.usefixtures("undrawn")
def test_two_studies_are_compared_by_models_of_one_name(tmp_path: Path) -> None:
    old = study(tmp_path / "old", seeds=4, accuracy=0.5)
    new = study(tmp_path / "new", seeds=4, accuracy=0.95)
    report = write_comparison([old, new])
    assert report.folder == old / "report-with-new"
    assert report.findings is not None
    pairs = report.findings.differences[["first", "second", "difference", "pairs"]].to_numpy().tolist()
    assert pairs == [[f"{m} [old]", f"{m} [new]", pytest.approx(-0.45), 4] for m in ("gru", "rnn")] * 2
    assert len(report.findings.lanes) == 64
    assert report.findings.lanes["id"].is_unique
    assert "gru [new]" in report.files["report.html"].read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_studies_of_other_models_are_compared_one_with_another(tmp_path: Path) -> None:
    first = study(tmp_path / "a", models=("gru",))
    second = study(tmp_path / "b", models=("rnn", "mlstm"))
    found = write_comparison([first, second]).findings
    assert found is not None
    assert {tuple(pair) for pair in found.differences[["first", "second"]].to_numpy()} == {
        ("gru [a]", "rnn [b]"),
        ("gru [a]", "mlstm [b]"),
    }


@pytest.mark.usefixtures("undrawn")
def test_comparisons_that_cannot_be(tmp_path: Path) -> None:
    folder = study(tmp_path / "a")
    with pytest.raises(ValueError, match="two studies or more, got 1"):
        write_comparison([folder])
    with pytest.raises(ValueError, match="cannot be compared with itself"):
        write_comparison([folder, folder])


@pytest.mark.usefixtures("undrawn")
def test_the_garbage_collector_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def find(study: Path) -> None:
        seen.append(gc.isenabled())
        if len(seen) > 1:
            raise ValueError("no records")

    monkeypatch.setattr("statelab.analysis.report.find", find)
    write_report(tmp_path)
    with pytest.raises(ValueError, match="no records"):
        write_report(tmp_path)
    assert seen == [False, False]
    assert gc.isenabled()


def test_reports_need_nothing_that_is_slow_to_import(tmp_path: Path) -> None:
    lanes = grid(
        ["parity"], ["gru", "rnn"], [1e-3, 1e-2], 3, lambda task, model, rate, seed: 0.3 * seed + 0.3
    )
    folder = write_study(tmp_path / "s", lanes, by_length(lanes, [16, 32]))
    code = f"""
import sys
from statelab.analysis import studio
from statelab.analysis.report import write_report
studio._may_fork = lambda: False
assert len(write_report({str(folder)!r}, ["pdf"]).files) > 30
print(*({{"torch", "seaborn", "scipy.stats", "scipy.optimize", "matplotlib.pyplot"}} & set(sys.modules)))
"""
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], check=True, cwd=root, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_the_package_offers_its_functions_without_importing_them() -> None:
    code = "import sys, statelab.analysis; sys.exit(bool({'pandas', 'scipy', 'seaborn'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    offered = set(statelab.analysis._HOMES)
    assert offered <= set(dir(statelab.analysis))
    for name in offered:
        assert getattr(statelab.analysis, name).__name__ == name
    with pytest.raises(AttributeError, match="has no 'solve_table'"):
        statelab.analysis.solve_table  # noqa: B018
