"""Kill -9 at random instants, many times, and compare what is left with a calm run.

Run as `python -m tests.torture.storm --kills 200`: launchers, single workers of a pool, and processes in the middle
of a journal or record write are killed, with 1, 2 and 4 workers, over journal files and over PostgreSQL.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from statelab.sweeps.keeper import study_name
from statelab.sweeps.launch import kept_spec
from statelab.sweeps.record import LaneFolder, collect, collect_curves, collect_lengths, study_lanes
from statelab.sweeps.storage import Storage
from tests.sweeps.database import missing, postgres
from tests.sweeps.specs import SMALL

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("launcher", "worker", "write")


@dataclass
class Storm:
    """Kills one way of running a study until so many kills have hit it; each study that survives is compared."""

    folder: Path
    workers: int
    url: str | None
    draw: random.Random
    spec: Path
    calm: Path
    seconds: float
    hits: Counter[str] = field(default_factory=Counter)
    studies: int = 0
    exact: int = 0
    lanes: int = 0

    def run(self, kills: int) -> None:
        """Go on until `kills` kills have hit, then let the last study finish."""
        while self.hits.total() < kills:
            self.studies += 1
            runs = self.folder / f"storm-{self.studies}"
            runs.mkdir()
            # A database has one study of a name: each storm has its own.
            spec = runs / "spec.toml"
            spec.write_text(self.spec.read_text().replace('name = "small"', f'name = "small{self.studies}"'))
            while not self._attack(spec, runs, kills):
                pass
            self._compare(runs / "runs" / f"small{self.studies}")

    def _attack(self, spec: Path, runs: Path, kills: int) -> bool:
        """Start the study and kill at random instants; whether it has come to its end."""
        over = self.hits.total() >= kills
        kind = "calm" if over else self.draw.choice(KINDS)
        tally = runs / "torn"
        torn = len(tally.read_text().splitlines()) if tally.exists() else 0
        process = self._start(spec, runs, tally if kind == "write" else None)
        while process.poll() is None:
            end = time.monotonic() + self.draw.uniform(0.1, 1.2) * self.seconds
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if kind in ("launcher", "worker") and process.poll() is None and self.hits.total() < kills:
                self._kill(process, kind)
        said = process.communicate()[1]
        if tally.exists():
            self.hits["write"] += len(tally.read_text().splitlines()) - torn
        assert "Traceback" not in said, said
        # 1: a worker was killed more often in a row than its launcher puts up with.
        assert process.returncode in (0, -signal.SIGKILL) or "was killed" in said, (process.returncode, said)
        return process.returncode == 0

    def _start(self, spec: Path, runs: Path, tally: Path | None) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "statelab.sweeps.cli",
            "run",
            str(spec),
            "--runs",
            str(runs / "runs"),
        ]
        command += ["--no-report", "--workers", str(self.workers)] + (
            ["--storage", self.url] if self.url else []
        )
        changes = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        if tally is not None:
            changes |= {
                "PYTHONPATH": f"{ROOT / 'tests/torture/torn'}:{ROOT}",
                "STATELAB_TORN": "0.02",
                "STATELAB_TORN_TALLY": str(tally),
            }
        return subprocess.Popen(
            command, cwd=runs, env=os.environ | changes, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _kill(self, process: subprocess.Popen[str], kind: str) -> None:
        victims = _children(process.pid) if kind == "worker" else []
        try:
            os.kill(self.draw.choice(victims) if victims else process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.hits["worker" if victims else "launcher"] += 1

    def _compare(self, study: Path) -> None:
        wanted = study_lanes(study)
        assert wanted is not None
        assert len(wanted) == len(set(wanted)) == len(list((study / "lanes").iterdir()))
        trials = _trials(study, self.url)
        assert sorted(trials) == sorted(wanted), "a lane is lost or doubled in the ledger"
        checked = compare(self.calm, study)
        self.exact += checked
        self.lanes += len(wanted)


def compare(calm: Path, stormy: Path) -> int:
    """Compare two studies lane by lane: bit for bit where the population is the same, else to rounding.

    Returns how many lanes were compared bit for bit.
    """
    for collected, key in (
        (collect, "id"),
        (collect_lengths, ["id", "length"]),
        (collect_curves, ["id", "step"]),
    ):
        left, right = (
            collected(study)
            .drop(columns=["seconds", "study"], errors="ignore")
            .sort_values(key, ignore_index=True)
            for study in (calm, stormy)
        )
        same = left["id"].map(lambda i: _population(calm, i) == _population(stormy, i))
        pd.testing.assert_frame_equal(left[same], right[same], check_exact=True)
        pd.testing.assert_frame_equal(left[["id"]], right[["id"]])
        for name in ("accuracy", "loss"):
            np.testing.assert_allclose(left[name], right[name], atol=1e-3, err_msg=name)
        if collected is collect:
            exact = int(same.sum())
    return exact


def _population(study: Path, lane_id: str) -> int:
    result = LaneFolder(study, lane_id).result()
    assert result is not None
    return int(result["run"]["population"])


def _trials(study: Path, url: str | None) -> list[str]:
    storage = Storage(study, url).optuna
    trials = storage.get_all_trials(storage.get_study_id_from_name(study_name(kept_spec(study))))
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "FAIL"}
    return [trial.user_attrs["lane"] for trial in trials if trial.state.name == "COMPLETE"]


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def storage(kind: str) -> Iterator[str | None]:
    """The URL of a storage of this kind for the time of the block; None for journal files."""
    with postgres() if kind == "postgres" else nullcontext(None) as url:
        yield url


def write_spec(folder: Path, steps: int) -> Path:
    """A study of 12 lanes that takes long enough to be killed in the middle."""
    spec = folder / "small.toml"
    spec.write_text(SMALL.replace("steps = 12", f"steps = {steps}").replace("every = 5", "every = 20"))
    return spec


def calm_run(folder: Path, spec: Path) -> float:
    """Run the study undisturbed in `folder`; the seconds it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "statelab.sweeps.cli", "run", str(spec), "--workers", "1", "--no-report"]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def main() -> None:
    """The long torture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--storages", nargs="+", default=["journal", "postgres"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if "postgres" in asked.storages and (reason := missing()):
        print(f"without PostgreSQL: {reason}")  # noqa: T201
        asked.storages.remove("postgres")
    with tempfile.TemporaryDirectory(prefix="statelab-torture-") as made:
        folder = Path(made)
        spec = write_spec(folder, asked.steps)
        seconds = calm_run(folder, spec)
        print(f"a calm run takes {seconds:.1f} s", flush=True)  # noqa: T201
        ways = [(kind, workers) for kind in asked.storages for workers in asked.workers]
        for index, (kind, workers) in enumerate(ways):
            kills = asked.kills * (index + 1) // len(ways) - asked.kills * index // len(ways)
            with storage(kind) as url:
                here = folder / f"{kind}-{workers}"
                here.mkdir()
                draw = random.Random(f"{asked.seed} {kind} {workers}")
                storm = Storm(here, workers, url, draw, spec, folder / "runs/small", seconds)
                storm.run(kills)
            print(  # noqa: T201
                f"{kind}, {workers} workers: {storm.hits.total()} kills ({dict(storm.hits)}) over {storm.studies} "
                f"studies; {storm.lanes} lanes, each there once, {storm.exact} bit for bit, the others to rounding",
                flush=True,
            )


if __name__ == "__main__":
    main()
