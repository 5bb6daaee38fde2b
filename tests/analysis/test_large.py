"""How long reports take on two cores: 6 s for a study of the demo's size, 30 s and 2 GB for one of 10,000 lanes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.frames import by_length, grid, lane, write_study

TASKS, MODELS, RATES, SEEDS = 10, 10, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), 20
EVALUATIONS, EVERY = 200, 50
BUSY = 2.0
"""Our two processes alone; more is somebody else's."""
LENGTHS = (16, 32, 64, 128, 256)
ROOT = Path(__file__).parents[2]

REPORT = """
import json, resource, sys, time
start = time.perf_counter()
from statelab.analysis.report import write_report
report = write_report(sys.argv[1])
used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([time.perf_counter() - start, used / 1e6, len(report.findings.lanes), len(report.files)]))
"""


def write_large(folder: Path) -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(1, EVALUATIONS + 1) * EVERY
    settings = [
        (f"task {t}", f"model {m}", rate, seed, m)
        for t in range(TASKS)
        for m in range(MODELS)
        for rate in RATES
        for seed in range(SEEDS)
    ]
    ids = []
    for task, model, rate, seed, m in settings:
        accuracy = np.where(steps >= rng.exponential(3000 * (1 + m / 5)), 0.96, 0.5) + rng.normal(
            0, 0.01, len(steps)
        )
        reached = steps[accuracy >= 0.9]
        row = lane(
            task, model, rate, seed, float(accuracy[-1]), steps=int(steps[-1]), state_size=64 * (m + 1),
            escape_step=int(reached[0]) if len(reached) else None,
        )  # fmt: skip
        ids.append(row.pop("id"))
        record = folder / "lanes" / str(ids[-1])
        record.mkdir(parents=True)
        points = [
            json.dumps({"step": int(s), "train_loss": 1 - a, "loss": 1 - a, "accuracy": a})
            for s, a in zip(steps, accuracy.tolist(), strict=True)
        ]
        (record / "curve.jsonl").write_text("\n".join(points) + "\n")
        tests = [
            {
                "length": n,
                "accuracy": 0.9,
                "loss": 0.1,
                "scaled_accuracy": 0.8,
                "metrics": {"by_distance": [0.5] * 24},
            }
            for n in LENGTHS
        ]
        (record / "result.json").write_text(json.dumps({"row": row, "lengths": tests}))
    (folder / "study.json").write_text(json.dumps({"name": "large", "lanes": ids}))


@pytest.mark.slow
def test_a_large_study(tmp_path: Path) -> None:
    write_large(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", REPORT, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds, gigabytes, lanes, files = json.loads(run.stdout)
    assert lanes == TASKS * MODELS * len(RATES) * SEEDS == 10_000
    assert files > 50
    assert gigabytes < 2
    unless_busy(seconds, 30)


@pytest.mark.slow
def test_a_study_of_the_demos_size(tmp_path: Path) -> None:
    """The command as it is given, all nine figures in every format."""
    models = ["GRU", "Mamba-2", "Gated DeltaNet [0,1]", "Gated DeltaNet [-1,1]"]
    lanes = grid(
        ["parity"], models, [3e-3, 1e-2], 4, lambda task, model, rate, seed: 0.5 + len(model) / 41 - seed / 40
    )
    folder = write_study(tmp_path / "small", lanes.assign(steps=400), by_length(lanes, LENGTHS))
    for path in folder.glob("lanes/*/result.json"):
        result = json.loads(path.read_text())
        tests = [{key: test[key] for key in ("length", "accuracy", "loss")} for test in result["lengths"]]
        path.write_text(json.dumps({"row": result["row"], "run": result["run"], "lengths": tests}))
    start = time.perf_counter()
    command = [sys.executable, "-m", "statelab.sweeps.cli", "report", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    seconds = time.perf_counter() - start
    assert len(list((folder / "report").glob("*.png"))) == 9
    unless_busy(seconds, 6)


def unless_busy(seconds: float, most: float) -> None:
    if (busy := os.getloadavg()[0]) > BUSY:
        pytest.skip(f"other work is going on (load {busy:.1f}): {seconds:.0f} s say nothing of our own")
    assert seconds < most
