"""Two workers on one study, each with a card of its own, against one worker: throughput, and what their threads do.

Run as `python -m tests.torture.two_gpus` on a machine with two cards. The same study is run three times: a few steps,
so that every kernel is built; by one worker; by two.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from statelab.sweeps.record import collect
from tests.torture.calm import ROOT

SPEC = """
name = "small"
threshold = 0.9

[[tasks]]
task = "parity"
answer = "running"
length = LENGTH

[[tasks]]
task = "noisy_recall"
vocab = 40
length = LENGTH

[[models]]
name = "mLSTM"
width = 64
layers = [{ mixer = "mlstm", heads = 4 }]

[[models]]
name = "Mamba-2"
width = 64
layers = ["mamba2"]

[training]
steps = STEPS
batch = BATCH
arithmetic = "ARITHMETIC"

[evaluation]
every = EVERY
rows = 128

[sweep]
learning_rate = [1e-3, 3e-3, 1e-2]
seeds = 8
"""
"""Four cells of 24 lanes: two for each of two workers."""

SAMPLE_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Run:
    """One way in which the study was run.

    `seconds` is all of it, imports included; `start` until the first lane began, `working` from there to the last
    lane's record.
    `threads` has, for each thread of each process, its share of a core in every interval while lanes were trained.
    """

    workers: int
    seconds: float = 0.0
    start: float = 0.0
    working: float = 0.0
    lane_steps: int = 0
    training: float = 0.0
    threads: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def throughput(self) -> float:
        """Lane-steps a second, from the first lane's start to the last lane's record."""
        return self.lane_steps / self.working

    @property
    def training_throughput(self) -> float:
        """Lane-steps a second of the populations' own training times, as records have them."""
        return self.lane_steps / (self.training / self.workers)

    def busiest(self) -> dict[int, list[float]]:
        """For each process, the usual shares of a core of its busiest threads, highest first."""
        found = defaultdict(list)
        for (process, _), shares in self.threads.items():
            found[process].append(median(shares))
        return {process: sorted(shares, reverse=True)[:3] for process, shares in found.items()}


def missing() -> str | None:
    """Why this cannot be measured here, or None."""
    import torch

    count = torch.cuda.device_count()
    return None if count >= 2 else f"needs two CUDA devices; torch sees {count}"


def measure(folder: Path, workers: int, steps: int, device: str) -> Run:
    """Run the study once in a folder of its own, watching its processes."""
    folder.mkdir()
    spec = folder / "spec.toml"
    sizes = {"LENGTH": "128", "BATCH": "64", "ARITHMETIC": "tf32"}
    if device == "cpu":
        sizes = {"LENGTH": "8", "BATCH": "1", "ARITHMETIC": "float32"}
    text = SPEC
    for word, value in (sizes | {"STEPS": str(steps), "EVERY": str(max(1, steps // 6))}).items():
        text = text.replace(word, value)
    spec.write_text(text)
    command = [sys.executable, "-m", "statelab.sweeps.cli", "run", str(spec), "--workers", str(workers)]
    command += ["--device", device, "--no-report"]
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    found, began, at_clock = Run(workers), time.monotonic(), time.time()
    with (folder / "said").open("w") as said:
        environment = os.environ | {"PYTHONPATH": path}
        launcher = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        lanes = folder / "runs/small/lanes"
        before, at = dict[tuple[int, int], int](), time.monotonic()
        while launcher.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            now, ticks = time.monotonic(), _ticks(launcher.pid)
            if any(lanes.glob("*/curve.jsonl")):
                for thread in ticks.keys() & before.keys():
                    share = (ticks[thread] - before[thread]) / TICKS / (now - at)
                    found.threads[thread].append(share)
            before, at = ticks, now
    assert launcher.returncode == 0, (folder / "said").read_text()[-3000:]
    found.seconds = time.monotonic() - began
    records = collect(folder / "runs/small")
    found.lane_steps, found.training = steps * len(records), float(records["seconds"].sum())
    first = min(path.stat().st_mtime for path in lanes.glob("*/spec.json"))
    found.start = first - at_clock
    found.working = max(path.stat().st_mtime for path in lanes.glob("*/result.json")) - first
    return found


def _ticks(launcher: int) -> dict[tuple[int, int], int]:
    """Clock ticks that each thread of a launcher and its workers has used so far."""
    found = {}
    for process in (launcher, *_children(launcher)):
        for stat in Path(f"/proc/{process}/task").glob("*/stat"):
            try:
                words = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            found[process, int(stat.parent.name)] = int(words[11]) + int(words[12])
    return found


def _children(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        found += [int(stat.parent.name)] if int(parent) == process else []
    return found


def table(runs: list[Run]) -> str:
    """The runs for a person, the last one's throughput over the first one's, and the threads."""
    lines = ["workers  lane-steps  all s  first lane s  working s  lane-steps/s  while training"]
    lines += [
        f"{run.workers:>7}  {run.lane_steps:>10,}  {run.seconds:>5.1f}  {run.start:>12.1f}  {run.working:>9.1f}  "
        f"{run.throughput:>12,.0f}  {run.training_throughput:>14,.0f}"
        for run in runs
    ]
    first, last = runs[0], runs[-1]
    lines.append(
        f"ratio {last.throughput / first.throughput:.2f} working, "
        f"{last.training_throughput / first.training_throughput:.2f} while training"
    )
    for run in runs:
        for process, shares in run.busiest().items():
            each = ", ".join(f"{100 * share:.0f} %" for share in shares)
            lines.append(f"{run.workers} workers, process {process}: busiest threads use {each} of a core")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="of each lane")
    parser.add_argument(
        "--device", default="cuda", choices=["cuda", "cpu"], help="cpu only tries this program"
    )
    asked = parser.parse_args()
    if asked.device == "cuda" and (reason := missing()):
        sys.exit(f"two-gpus: {reason}")
    with tempfile.TemporaryDirectory(prefix="statelab-two-") as made:
        folder = Path(made)
        measure(folder / "first", 1, 6, asked.device)
        print(table([measure(folder / str(n), n, asked.steps, asked.device) for n in (1, 2)]))  # noqa: T201


if __name__ == "__main__":
    main()
