"""`statelab bench throughput` and `bench decode` as a person uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from statelab.sweeps.cli import app
from statelab.sweeps.errors import UserError
from tests.sweeps.test_cli import environment
from tests.test_architecture import HOMES

MODELS = "rnn,hybrid_gated_delta,hybrid_gated_delta_m2rnn,tests.models.own_layers:Sum"
SIZES = ["--width", "16", "--layers", "2", "--seconds", "60"]
TRAINING = ["bench", "throughput", "--lengths", "8,4", "--tokens", "16", *SIZES]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if every call took 4 s: what is tested is not the timing, and a minute holds fifteen of them.
    monkeypatch.setattr("statelab.models.timing.clock", lambda work, _: (work(), 4.0)[1])
    monkeypatch.chdir(tmp_path)


def said(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_training_speed_is_printed_kept_and_drawn(tmp_path: Path) -> None:
    printed = said(*TRAINING, "--mixers", MODELS, "--to", "new/folder")
    assert all(name in printed for name in MODELS.split(","))
    assert "has 100.0% at 4, 100.0% at 8 of the hybrid's tokens a second" in printed
    rows = pd.read_csv(tmp_path / "new/folder/throughput.csv")
    assert list(rows["length"]) == [4, 8] * 4
    assert set(rows["tokens_per_second"]) == {16 / 4}
    assert set(rows["steps"]) == {15}
    for kind in ("png", "svg", "pdf"):
        assert (tmp_path / f"new/folder/throughput.{kind}").stat().st_size > 5000


def test_decoding_speed_is_printed_kept_and_drawn(tmp_path: Path) -> None:
    words = ["--mixers", MODELS, "--lengths", "2", "--batch", "2", "--context", "4", "--states", "8"]
    said("bench", "decode", *words, *SIZES)
    steps = pd.read_csv(tmp_path / "benchmarks/decode_steps.csv")
    assert set(steps["model"]) == {"rnn", "tests.models.own_layers:Sum"}
    sequences = pd.read_csv(tmp_path / "benchmarks/decode_sequences.csv")
    assert list(sequences["model"]) == MODELS.split(",")
    assert set(sequences["arithmetic"]) == {"float32"}
    assert sequences["note"].isna().all()
    assert {path.name for path in (tmp_path / "benchmarks").iterdir()} == {
        f"decode_{part}.{kind}" for part in ("steps", "sequences") for kind in ("csv", "pdf", "png", "svg")
    }


def test_sequences_have_the_last_arithmetic_and_parts_can_be_had_alone(tmp_path: Path) -> None:
    words = ["--mixers", "rnn", "--lengths", "2", "--batch", "2", *SIZES]
    said("bench", "decode", *words, "--part", "sequences", "--arithmetic", "float32,bf16")
    assert not (tmp_path / "benchmarks/decode_steps.csv").exists()
    assert set(pd.read_csv(tmp_path / "benchmarks/decode_sequences.csv")["arithmetic"]) == {"bf16"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["throughput", "--mixers", "gruu"], "Did you mean 'gru'"),
        (["throughput", "--lengths", "512,many"], "whole numbers with commas between"),
        (["throughput", "--tokens", "100"], "multiple of each length"),
        (["throughput", "--device", "tpu"], "unknown device"),
        (["decode", "--part", "halves"], "unknown part 'halves'; known: both, steps, sequences"),
        (["decode", "--part", "steps", "--mixers", "hybrid_gated_delta"], "only --part sequences"),
        (["decode", "--arithmetic", "float32,fp8"], "unknown arithmetic 'fp8'"),
        (["throughput", "--to", "taken"], "cannot write into taken"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_a_sentence_before_anything_is_measured(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(UserError, match=sentence):
        app(["bench", *words], standalone_mode=False)
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_neither_optuna_nor_pydantic_is_needed_by_our_modules(tmp_path: Path) -> None:
    """On a machine that has torch and a card, and not much more."""
    words = ["statelab", *TRAINING, "--mixers", "rnn", "--to", str(tmp_path)]
    homes = [
        home.removesuffix(".py").replace("/", ".") for name in ("optuna", "pydantic") for home in HOMES[name]
    ]
    code = f"""
import sys
from statelab.sweeps.cli import app
sys.argv = {words!r}
app(standalone_mode=False)
print(sorted({{"optuna", *("statelab." + home for home in {homes!r})}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
