"""A full disk: one sentence, what was recorded stays readable, and the study goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelab.sweeps.record import collect, collect_curves
from tests.sweeps.specs import SMALL
from tests.sweeps.test_cli import statelab


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB that is taken down again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes of the disk."""
    path = disk / "filler"
    free = os.statvfs(disk)
    path.write_bytes(b"\0" * (free.f_bavail * free.f_bsize - leave))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("leave", [0, 40_000, 72_000])
def test_a_full_disk_is_a_sentence_and_the_study_goes_on_when_there_is_room(
    small_disk: Path, leave: int
) -> None:
    spec = small_disk.parent / "small.toml"
    spec.write_text(SMALL)
    words = ("run", spec, "--runs", small_disk / "runs", "--no-report")
    filler = fill(small_disk, leave)
    full = statelab(*words, cwd=small_disk.parent)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert "the disk is full" in full.stderr
    study = small_disk / "runs/small"
    before = collect(study) if study.is_dir() else None
    filler.unlink()
    done = statelab(*words, cwd=small_disk.parent)
    assert done.returncode == 0, done.stderr
    after = collect(study)
    assert len(after) == 12
    assert collect_curves(study).groupby("id")["step"].apply(list).tolist() == [[5, 10, 12]] * 12
    if before is not None:
        assert set(before["id"]) <= set(after["id"])
