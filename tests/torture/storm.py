"""Kill -9 at random instants, many times, and compare what is left with a calm run.

Run as `python -m tests.torture.storm --kills 200`: launchers, single workers of a pool, and processes in the middle
of a journal or record write are killed, with 1, 2 and 4 workers, over journal files and over PostgreSQL. A part of
it: `--storages postgres --workers 4 --kills 33`.
"""

from __future__ import annotations

import argparse
import math
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
from typing import Any

from statelab.sweeps.keeper import study_name
from statelab.sweeps.launch import kept_spec
from statelab.sweeps.record import study_lanes
from statelab.sweeps.storage import Storage
from tests.sweeps.database import missing, postgres
from tests.torture.calm import ROOT, calm_run, write_spec
from tests.torture.compare import compare
from tests.torture.forked import Forked

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
    cold: bool = False
    seconds: float = math.inf
    hits: Counter[str] = field(default_factory=Counter)
    studies: int = 0
    exact: int = 0
    lanes: int = 0

    def run(self, kills: int) -> None:
        """Time a study that nobody disturbs, go on until `kills` kills have hit, then let the last study finish."""
        self._study(0)
        while self.hits.total() < kills:
            self._study(kills)

    def told(self, kind: str) -> str:
        """What has been found, for a person."""
        hits = ", ".join(f"{count} {name}" for name, count in sorted(self.hits.items()))
        return (
            f"{kind}, {self.workers} workers: {self.hits.total()} kills ({hits}) over {self.studies} studies of "
            f"{self.seconds:.1f} s; {self.lanes} lanes, each there once, {self.exact} bit for bit, "
            f"{self.lanes - self.exact} to rounding"
        )

    def _study(self, kills: int) -> None:
        self.studies += 1
        runs = self.folder / f"storm-{self.studies}"
        runs.mkdir()
        # A database has one study of a name: each storm has its own.
        spec = runs / "spec.toml"
        spec.write_text(self.spec.read_text().replace('name = "small"', f'name = "small{self.studies}"'))
        began, undisturbed = time.monotonic(), True
        while not self._attack(spec, runs, kills):
            undisturbed = False
        if undisturbed:  # what else the machine does may have held the others up
            self.seconds = min(self.seconds, time.monotonic() - began)
        self._compare(runs / "runs" / f"small{self.studies}")

    def _attack(self, spec: Path, runs: Path, kills: int) -> bool:
        """Start the study and kill at random instants; whether it has come to its end."""
        over = self.hits.total() >= kills
        kind = "calm" if over else self.draw.choice(KINDS)
        tally = runs / "torn"
        torn = len(tally.read_text().splitlines()) if tally.exists() else 0
        process = self._start(spec, runs, tally if kind == "write" else None)
        latest = time.monotonic() + 1800
        while process.poll() is None:
            assert time.monotonic() < latest, f"a launcher hangs in {runs}"
            end = time.monotonic() + self.draw.uniform(0.02, 1.2) * self.seconds
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            if kind in ("launcher", "worker") and process.poll() is None and self.hits.total() < kills:
                self._kill(process, kind)
        said = process.communicate()[1]
        if tally.exists():
            self.hits["write"] += len(tally.read_text().splitlines()) - torn
        assert "Traceback" not in said, said
        # 1: a worker was killed more often in a row than its launcher puts up with.
        assert process.returncode in (0, -signal.SIGKILL) or "was killed" in said, (process.returncode, said)
        return process.returncode == 0

    def _start(self, spec: Path, runs: Path, tally: Path | None) -> subprocess.Popen[str] | Forked:
        command = [
            sys.executable, "-m", "statelab.sweeps.cli", "run", str(spec), "--runs", str(runs / "runs"),
            "--no-report", "--workers", str(self.workers), *(["--storage", self.url] if self.url else []),
        ]  # fmt: skip
        path, changes = [str(ROOT)], {}
        if tally is not None:
            path.insert(0, str(ROOT / "tests/torture/torn"))
            changes = {"STATELAB_TORN": "0.01", "STATELAB_TORN_TALLY": str(tally)}
        env = os.environ | {"PYTHONPATH": ":".join(path), "OMP_NUM_THREADS": "1"} | changes
        how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        start = subprocess.Popen if self.cold else Forked
        return start(command, cwd=runs, env=env, **how)

    def _kill(self, process: subprocess.Popen[str] | Forked, kind: str) -> None:
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


def _trials(study: Path, url: str | None) -> list[str]:
    storage = Storage(study, url)
    ledger = storage.optuna
    trials = ledger.get_all_trials(ledger.get_study_id_from_name(study_name(kept_spec(study))))
    storage.close()
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


def main() -> None:
    """The long torture, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="shared out over the ways asked for")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--storages", nargs="+", choices=["journal", "postgres"], default=["journal", "postgres"]
    )
    parser.add_argument("--steps", type=int, default=50, help="of each of the twelve lanes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cold", action="store_true", help="start each process by its command line: slow")
    asked = parser.parse_args()
    if "postgres" in asked.storages and (reason := missing()):
        print(f"without PostgreSQL: {reason}")  # noqa: T201
        asked.storages.remove("postgres")
    with tempfile.TemporaryDirectory(prefix="statelab-torture-") as made:
        folder = Path(made)
        spec = write_spec(folder, asked.steps)
        calm_run(folder, spec)
        ways = [(kind, workers) for kind in asked.storages for workers in asked.workers]
        for index, (kind, workers) in enumerate(ways):
            kills = asked.kills * (index + 1) // len(ways) - asked.kills * index // len(ways)
            with storage(kind) as url:
                here = folder / f"{kind}-{workers}"
                here.mkdir()
                draw = random.Random(f"{asked.seed} {kind} {workers}")
                storm = Storm(here, workers, url, draw, spec, folder / "runs/small", asked.cold)
                storm.run(kills)
            print(storm.told(kind), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
