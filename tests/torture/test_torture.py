"""The torture in short; `make torture` is the long one."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.sweeps import database
from tests.torture.calm import ROOT


@pytest.mark.parametrize(
    ("kind", "workers", "kills"),
    [
        ("journal", 2, 5),
        pytest.param("journal", 4, 30, marks=pytest.mark.slow),
        pytest.param("postgres", 2, 30, marks=pytest.mark.slow),
    ],
)
def test_killed_studies_lose_and_double_nothing(kind: str, workers: int, kills: int) -> None:
    if kind == "postgres" and (reason := database.missing()):
        pytest.skip(reason)
    words = ["--storages", kind, "--workers", str(workers), "--kills", str(kills), "--seed", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.storm", *words],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = re.match(
        rf"{kind}, {workers} workers: (\d+) kills .* over (\d+) studies .* (\d+) lanes,", done.stdout
    )
    assert told is not None, done.stdout
    found, studies, lanes = map(int, told.groups())
    assert found >= kills
    assert lanes == 12 * studies
