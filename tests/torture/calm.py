"""The study that is tortured, and an undisturbed run of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = """
name = "small"
threshold = 0.6

[[tasks]]
name = "every prefix"
task = "parity"
answer = "running"
length = 6
test_lengths = [6, 9]

[[tasks]]
name = "the whole"
task = "parity"
length = 5
test_lengths = [5, 8]

[[models]]
name = "GRU"
width = 8
layers = [{ mixer = "gru", conv = 0 }]

[[models]]
name = "Mamba-2"
width = 8
layers = [{ mixer = "mamba2", head_dim = 8, d_state = 4 }]

[training]
steps = STEPS
batch = 4
arithmetic = "float64"

[evaluation]
every = 10
rows = 16

[sweep]
learning_rate = 1e-2
seeds = 3
"""
"""Twelve lanes in four cells, so that four workers find work."""


def write_spec(folder: Path, steps: int) -> Path:
    """A study of 12 lanes that takes long enough to be killed in the middle."""
    spec = folder / "small.toml"
    spec.write_text(SPEC.replace("STEPS", str(steps)))
    return spec


def calm_run(folder: Path, spec: Path) -> None:
    """Run the study undisturbed in `folder`, by its command line."""
    command = [sys.executable, "-m", "statelab.sweeps.cli", "run", str(spec), "--workers", "1", "--no-report"]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
