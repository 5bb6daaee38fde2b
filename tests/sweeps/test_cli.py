"""The command line as a person uses it: exit codes, sentences, Ctrl-C, kill -9."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from statelab.sweeps.cli import main
from tests.sweeps.specs import SMALL
from tests.sweeps.test_worker import results

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "statelab.sweeps.cli"]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def statelab(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=240)


Here = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """`statelab` in this process, which has imported what another one would import anew."""

    def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["statelab", *map(str, words)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as end:
            main()
        said = capfd.readouterr()
        return subprocess.CompletedProcess(words, int(end.value.code or 0), said.out, said.err)

    return run


def start(spec: Path, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "run", str(spec)], cwd=cwd, env=environment(), text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def long_spec(folder: Path, steps: int) -> Path:
    path = folder / "long.toml"
    path.write_text(SMALL.replace("steps = 12", f"steps = {steps}").replace("every = 5", "every = 50"))
    return path


@pytest.mark.parametrize("words", [("check",), ("run",)], ids=["check", "run"])
def test_a_wrong_spec_ends_in_exit_2_and_nothing_is_made(words: tuple[str], spec: Path) -> None:
    spec.write_text(SMALL.replace("length = 6", "lenght = 6").replace("seeds = 3", "seeds = 0"))
    done = statelab(*words, spec, cwd=spec.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "tasks[0].lenght: unknown key" in done.stderr
    assert "sweep.seeds" in done.stderr
    assert list(spec.parent.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("layer", "answer"),
    [
        ("nowhere.at_all:Layer", "cannot import 'nowhere.at_all'"),
        ("torch.nn:Nothing", "has no 'Nothing'"),
        ("torch:arange", "must be a class of torch.nn.Module"),
        ("torch.nn:Linear", "its options"),
    ],
)
def test_an_own_layer_that_cannot_be_built_ends_in_exit_2(
    layer: str, answer: str, spec: Path, here: Here
) -> None:
    spec.write_text(SMALL.replace('[{ mixer = "gru", conv = 0 }]', f'["{layer}"]'))
    done = here("run", spec, cwd=spec.parent)
    assert done.returncode == 2
    assert answer in done.stderr
    assert "Traceback" not in done.stderr
    assert list(spec.parent.iterdir()) == [spec]


def test_check_says_what_would_run(spec: Path) -> None:
    done = statelab("check", spec, cwd=spec.parent)
    assert done.returncode == 0
    assert "2 cells, 12 lanes" in done.stdout
    # Behind what a spec says, what is known once its models are built.
    assert re.search(
        r"parity × GRU: [0-9,]+ parameters, state [0-9]+, 6 lanes at once, about .* of memory", done.stdout
    )
    quick = statelab("check", spec, "--no-sizes", cwd=spec.parent)
    assert done.stdout.startswith(quick.stdout)
    assert "parameters" not in quick.stdout


def test_check_tells_of_a_layer_that_cannot_be_built(spec: Path, here: Here) -> None:
    spec.write_text(SMALL.replace('[{ mixer = "gru", conv = 0 }]', '["torch.nn:Linear"]'))
    done = here("check", spec, cwd=spec.parent)
    assert done.returncode == 2
    assert "its options" in done.stderr
    assert "Traceback" not in done.stderr


def test_run_status_report(spec: Path) -> None:
    done = statelab("run", spec, cwd=spec.parent)
    assert done.returncode == 0, done.stderr
    assert "GRU" in done.stdout
    assert "parity × Mamba-2 · 6 lanes · step 12/12" in done.stderr
    assert (spec.parent / "runs/small/report/solved.png").stat().st_size > 5000
    assert "12 of 12 lanes finished" in statelab("status", "small", cwd=spec.parent).stdout
    again = statelab("report", spec, cwd=spec.parent)
    assert again.stdout.strip() in done.stdout


@pytest.mark.parametrize("words", [("status", "nothing"), ("report", "nothing"), ("run", "a.toml", "--device", "tpu"),
    ("tasks", "show", "pairity"), ("models", "show", "mamba4"), ("tasks", "show", "parity", "--set", "answr=last"),
    ("tasks", "show", "parity", "--set", "answr"), ("tasks", "show", "noisy_recall", "--length", "7"),
])  # fmt: skip
def test_a_wrong_word_ends_in_exit_2_with_a_sentence(words: tuple[str, ...], spec: Path, here: Here) -> None:
    spec.rename(spec.with_name("a.toml"))
    done = here(*words, cwd=spec.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip()) > 20
    assert len(list(spec.parent.iterdir())) == 1


def test_what_there_is_can_be_listed_and_shown(tmp_path: Path, here: Here) -> None:
    assert "parity" in here("tasks", cwd=tmp_path).stdout
    assert "mlstm" in here("models", cwd=tmp_path).stdout
    assert "eigenvalues = '[0,1]'" in here("models", "show", "gated_delta", cwd=tmp_path).stdout
    shown = here("tasks", "show", "parity", "--set", "answer=running", "--rows", "2", cwd=tmp_path)
    assert shown.returncode == 0
    assert "torch" in here("doctor", cwd=tmp_path).stdout


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_and_the_same_command_goes_on(
    tmp_path: Path, signum: int, code: int
) -> None:
    path = long_spec(tmp_path, 4000)
    process = start(path, tmp_path)
    wait_for(tmp_path / "runs/small/lanes", process)
    time.sleep(2)
    process.send_signal(signum)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert list((tmp_path / "runs/small/checkpoints").glob("*.ckpt"))
    status = statelab("status", "small", cwd=tmp_path).stdout
    assert "12 waiting, 0 running" in status


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)


def kill_and_resume(folder: Path, kills: int, seed: int) -> None:
    """Kill a study at random instants until so many kills have hit it, let it finish, compare with a calm run."""
    calm, stormy = folder / "calm", folder / "stormy"
    calm.mkdir()
    stormy.mkdir()
    path = long_spec(folder, 150)
    began = time.monotonic()
    assert statelab("run", path, cwd=calm).returncode == 0
    whole = time.monotonic() - began
    draw = random.Random(seed)
    hits = 0
    for _ in range(kills):
        process = start(path, stormy)
        time.sleep(draw.uniform(0.2, 1.0) * whole)
        if process.poll() is None:
            process.kill()
            hits += 1
        process.communicate()
    done = statelab("run", path, cwd=stormy)
    assert done.returncode == 0, done.stderr
    assert hits > 0
    mine = results(stormy / "runs/small")
    assert len(list((stormy / "runs/small/lanes").iterdir())) == 12
    pd.testing.assert_frame_equal(results(calm / "runs/small"), mine, check_exact=True)


@pytest.mark.slow
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=3, seed=1)


@pytest.mark.slow
def test_kill_9_at_20_random_instants(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=20, seed=2)


def test_a_folder_that_cannot_be_written_is_one_sentence(spec: Path, here: Here) -> None:
    (spec.parent / "taken").write_text("a file")
    done = here("run", spec, "--runs", spec.parent / "taken", cwd=spec.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "taken" in done.stderr


def test_collect_status_and_dashboard_of_a_study(spec: Path) -> None:
    nothing = statelab("collect", "small", cwd=spec.parent)
    assert nothing.returncode == 2
    assert statelab("run", spec, "--no-report", "--workers", "2", cwd=spec.parent).returncode == 0
    assert not (spec.parent / "runs/small/report").exists()
    written = statelab("collect", "small", cwd=spec.parent)
    assert "lanes.csv: 12 rows" in written.stdout
    assert len(pd.read_csv(spec.parent / "runs/small/tables/curves.csv")) == 36
    watched = statelab("status", "small", "--watch", cwd=spec.parent)
    assert "12 of 12 lanes finished, 0 waiting, 0 running" in watched.stdout
    header, *rows = [line.split() for line in watched.stdout.splitlines() if line.startswith("  ")]
    assert header == ["waiting", "running", "solved", "unsolved", "diverged", "failed"]
    assert [int(row[-4].replace("·", "0")) + int(row[-3].replace("·", "0")) for row in rows] == [6, 6]
    wrong = statelab("collect", "small", "--format", "xml", cwd=spec.parent)
    assert (wrong.returncode, "known: csv, parquet" in wrong.stderr) == (2, True)


def test_check_tells_sizes_and_hours(spec: Path) -> None:
    done = statelab("check", spec, "--time", cwd=spec.parent)
    assert done.returncode == 0, done.stderr
    assert "570 parameters" in done.stdout
    assert "in all on one worker" in done.stdout
    assert list(spec.parent.iterdir()) == [spec]
