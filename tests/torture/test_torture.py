"""The torture in short; `make torture` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sweeps import database
from tests.torture.storm import Storm, calm_run, storage, write_spec


@pytest.mark.parametrize(
    ("kind", "workers", "kills"),
    [
        ("journal", 2, 2),
        pytest.param("journal", 4, 12, marks=pytest.mark.slow),
        pytest.param("postgres", 2, 12, marks=pytest.mark.slow),
    ],
)
def test_killed_studies_lose_and_double_nothing(tmp_path: Path, kind: str, workers: int, kills: int) -> None:
    if kind == "postgres" and (reason := database.missing()):
        pytest.skip(reason)
    spec = write_spec(tmp_path, 40)
    seconds = calm_run(tmp_path, spec)
    here = tmp_path / "storm"
    here.mkdir()
    with storage(kind) as url:
        storm = Storm(here, workers, url, random.Random(3), spec, tmp_path / "runs/small", seconds)
        storm.run(kills)
    assert storm.hits.total() >= kills
    assert storm.lanes == 12 * storm.studies
