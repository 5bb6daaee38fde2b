from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import statelab.analysis
from statelab.analysis.report import FILES, write_report
from tests.analysis.frames import by_length, grid, write_study


def study(
    folder: Path, seeds: int = 2, accuracy: float | None = 1.0, lengths: tuple[int, ...] = (16, 32)
) -> Path:
    lanes = grid(["parity", "mod 5"], ["gru", "rnn"], [1e-3, 1e-2], seeds, lambda *_: accuracy)
    return write_study(folder, lanes, by_length(lanes, lengths))


def test_a_report_writes_every_file_and_nothing_else(tmp_path: Path) -> None:
    report = write_report(study(tmp_path / "s"))
    assert set(report.files) == set(FILES)
    assert {path.name for path in report.folder.iterdir()} == set(FILES)
    assert report.files["table.txt"].read_text(encoding="utf-8") == report.text
    assert report.files["solved.png"].read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(report.files["table.csv"])
    assert len(table) == 8
    assert table["chosen"].sum() == 4
    assert len(pd.read_csv(report.files["differences.csv"])) == 2
    assert report.findings is not None
    assert len(report.findings.by_length) == 8


def test_an_empty_study_says_so_and_leaves_no_old_figure(tmp_path: Path) -> None:
    folder = write_report(study(tmp_path / "s")).folder
    for result in (tmp_path / "s" / "lanes").glob("*/result.json"):
        result.unlink()
    report = write_report(tmp_path / "s")
    assert report.text == "No lane of this study has finished yet, so there is nothing to report.\n"
    assert report.findings is None
    assert {path.name for path in folder.iterdir()} == {"table.txt", "table.md"}


@pytest.mark.parametrize(
    ("seeds", "accuracy", "lengths", "sentence"),
    [
        (1, 0.95, (16, 32), "All lanes have one seed"),
        (2, None, (16, 32), "Every lane diverged (16 lanes)."),
        (2, 1.0, (16, 32), "Every lane solved its task"),
        (2, 0.5, (16,), "One length only was tested, 16"),
        (2, 0.5, (), "No accuracy by length was recorded"),
    ],
)
def test_studies_with_little_to_show(
    tmp_path: Path, seeds: int, accuracy: float | None, lengths: tuple[int, ...], sentence: str
) -> None:
    report = write_report(study(tmp_path / "s", seeds, accuracy, lengths))
    assert sentence in report.text
    assert "solved.png" in report.files
    assert ("lengths.png" in report.files) == (accuracy is not None and lengths != ())


def test_one_lane(tmp_path: Path) -> None:
    lanes = grid(["parity"], ["gru"], [1e-3], 1, lambda *_: 0.95)
    report = write_report(write_study(tmp_path / "s", lanes, by_length(lanes, [16])))
    assert "One lane has finished." in report.text
    assert set(report.files) == set(FILES)


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
    folder = study(tmp_path / "s")
    old = write_report(folder).files["solved.png"].read_bytes()

    def torn(self: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", torn)
    with pytest.raises(OSError, match="no space left"):
        write_report(folder)
    assert (folder / "report" / "solved.png").read_bytes() == old
    assert not list((folder / "report").glob(".*"))


def test_reports_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from statelab.analysis.report import write_report; "
        f"write_report({str(study(tmp_path / 's'))!r}); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_package_offers_its_functions_without_importing_them() -> None:
    code = "import sys, statelab.analysis; sys.exit(bool({'pandas', 'scipy', 'seaborn'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    offered = set(statelab.analysis._HOMES)
    assert offered <= set(dir(statelab.analysis))
    for name in offered:
        assert getattr(statelab.analysis, name).__name__ == name
    with pytest.raises(AttributeError, match="has no 'solve_table'"):
        statelab.analysis.solve_table  # noqa: B018
