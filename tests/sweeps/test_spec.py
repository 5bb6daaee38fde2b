"""What a spec is read into, and what a wrong one is answered with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from statelab.models.settings import OptimiserSettings
from statelab.sweeps.cells import cells_of
from statelab.sweeps.demo import demo_spec_path
from statelab.sweeps.read import SpecError, parse_spec, read_spec
from tests.sweeps.specs import SMALL, small


def test_a_spec_becomes_cells_and_lanes() -> None:
    cells = cells_of(parse_spec(small(), "small.toml"))
    assert [cell.label for cell in cells] == ["parity × GRU", "parity × Mamba-2"]
    assert [(lane.optimiser.learning_rate, lane.seed) for lane in cells[0].lanes] == [
        (rate, seed) for rate in (3e-3, 1e-2) for seed in range(3)
    ]
    assert cells[0].training.length == 6
    assert cells[0].evaluation.test_lengths == (6, 9)


def test_any_number_of_the_optimiser_may_be_swept() -> None:
    spec = parse_spec(small(sweep__weight_decay=[0, 0.1], sweep__warmup=2), "small.toml")
    lanes = cells_of(spec)[0].lanes
    assert len(lanes) == 12
    assert {lane.optimiser.weight_decay for lane in lanes} == {0.0, 0.1}
    assert lanes[0].optimiser == OptimiserSettings(learning_rate=3e-3, weight_decay=0.0, warmup=2)


def test_layers_may_be_repeated() -> None:
    short = [{"repeat": 2, "layers": [{"mixer": "gated_delta", "repeat": 2}, "mamba2"]}]
    written = [{"mixer": "gated_delta"}, {"mixer": "gated_delta"}, "mamba2"] * 2
    assert ids(models__0__width=64, models__0__layers=short) == ids(
        models__0__width=64, models__0__layers=written
    )


def ids(**changes: Any) -> set[str]:
    return {cell.lane_id(lane) for cell in cells_of(parse_spec(small(**changes), "")) for lane in cell.lanes}


def test_an_id_is_of_the_science_alone() -> None:
    before = ids()
    assert len(before) == 12
    assert (
        ids(name="other", threshold=0.9, models__0__name="G", tasks__0__name="P", description="x") == before
    )
    assert ids(sweep__seeds=4) > before
    assert ids(sweep__learning_rate=[1e-2, 3e-3, 1e-1]) > before
    for change in ({"training__steps": 13}, {"evaluation__rows": 17}, {"tasks__0__length": 7}):
        assert not ids(**change) & before
    assert len(ids(models__0__width=16) & before) == 6


@pytest.mark.parametrize("path", sorted(demo_spec_path().parent.glob("*.toml")), ids=lambda path: path.stem)
def test_what_ships_is_right(path: Path) -> None:
    assert cells_of(read_spec(path))


def test_the_demos_spec_is_right() -> None:
    assert read_spec(demo_spec_path()).name == "demo"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "typo in a section": ({"trainnig": {}}, "trainnig: unknown key; known: name, .* Did you mean 'training'?"),
    "typo in a task": ({"tasks__0__lenght": 6}, r"tasks\[0\].lenght: unknown key; .* Did you mean 'length'?"),
    "typo in a model": ({"models__0__widht": 8}, r"models\[0\].widht: unknown key; .*Did you mean 'width'?"),
    "typo in a layer": (
        {"models__0__layers": [{"mixer": "gru", "head": 1}]},
        r"models\[0\].layers\[0\].head: unknown key; .*Did you mean 'heads'?",
    ),
    "typo in training": ({"training__step": 3}, "training.step: unknown key; .*Did you mean 'steps'?"),
    "typo in evaluation": ({"evaluation__row": 3}, "evaluation.row: unknown key; .*Did you mean 'rows'?"),
    "typo in sweep": ({"sweep__lerning_rate": 1}, "sweep.lerning_rate: unknown .*Did you mean 'learning_rate'?"),
    "unknown task": ({"tasks__0__task": "pairity"}, r"tasks\[0\].task: unknown task .*Did you mean 'parity'?"),
    "no task named": ({"tasks__0__task": ...}, r"tasks\[0\].task: missing; known: .*parity"),
    "unknown mixer": ({"models__0__layers": ["mamba4"]}, r"layers\[0\].mixer: unknown mixer.*Did you mean 'mamba\d'?"),
    "no mixer named": ({"models__0__layers": [{"heads": 1}]}, r"layers\[0\].mixer: missing; known"),
    "a layer that is a number": ({"models__0__layers": [3]}, r"layers\[0\]: must be a table"),
    "no layers": ({"models__0__layers": []}, r"models\[0\].layers: .*at least 1"),
    "no models": ({"models": []}, "models: .*at least 1"),
    "models missing": ({"models": ...}, "models: missing"),
    "no tasks": ({"tasks": []}, "tasks: .*at least 1"),
    "name missing": ({"name": ...}, "name: missing"),
    "a name that leaves the folder": ({"name": "../up"}, "name: only letters"),
    "wrong type": ({"training__steps": "12"}, r"training.steps: .*integer \(got '12'\)"),
    "true for a number": ({"training__steps": True}, "training.steps: .*integer"),
    "a fraction of a step": ({"training__steps": 1.5}, "training.steps: .*integer"),
    "zero steps": ({"training__steps": 0}, "training.steps: steps must be >= 1, got 0"),
    "negative rate": ({"sweep__learning_rate": [-1e-3]}, r"sweep.learning_rate\[0\]: .*> 0, got -0.001"),
    "one negative rate": ({"sweep__learning_rate": -1e-3}, "sweep.learning_rate: .*> 0, got -0.001"),
    "zero rate": ({"sweep__learning_rate": 0.0}, "sweep.learning_rate: .*> 0"),
    "infinite rate": ({"sweep__learning_rate": float("inf")}, "sweep.learning_rate: .*finite"),
    "rate not a number": ({"sweep__learning_rate": float("nan")}, "sweep.learning_rate: .*finite"),
    "no rates": ({"sweep__learning_rate": []}, "sweep.learning_rate: .*at least 1"),
    "a rate twice": ({"sweep__learning_rate": [1e-3, 1e-3]}, "sweep.learning_rate: 0.001 stands .*more than once"),
    "rate missing": ({"sweep__learning_rate": ...}, "sweep.learning_rate: missing"),
    "no seeds": ({"sweep__seeds": 0}, "sweep.seeds: the number of seeds must lie in 1..10000, got 0"),
    "empty seeds": ({"sweep__seeds": []}, "sweep.seeds: .*at least 1"),
    "seeds in words": ({"sweep__seeds": "four"}, r"sweep.seeds: input should be a list \(got 'four'\)"),
    "seeds missing": ({"sweep__seeds": ...}, "sweep.seeds: missing"),
    "a seed twice": ({"sweep__seeds": [1, 1]}, "sweep.seeds: seed 1 stands in the list more than once"),
    "a negative seed": ({"sweep__seeds": [-1]}, r"sweep.seeds\[0\]: .*greater than or equal to 0"),
    "unknown schedule": ({"training__schedule": "cosin"}, "training.schedule: .*Did you mean 'cosine'?"),
    "unknown arithmetic": ({"training__arithmetic": "fp16"}, "training.arithmetic: .*'bf16'"),
    "threshold over 1": ({"threshold": 95}, "threshold: .*less than or equal to 1"),
    "length that cannot work": (
        {"tasks__0": {"task": "noisy_recall", "length": 63}},
        r"tasks\[0\]: noisy_recall: length 63 .*even length >= 4",
    ),
    "test length that cannot work": (
        {"tasks__0": {"task": "noisy_recall", "length": 64, "test_lengths": [64, 3]}},
        r"tasks\[0\]: noisy_recall: length 3",
    ),
    "width that heads do not divide": (
        {"models__0__layers": [{"mixer": "gated_delta", "heads": 3}], "models__0__width": 8},
        r"models\[0\]: gated_delta: .*8.*3",
    ),
    "a stage without lengths": ({"tasks__0__train": [{"until": 3}]}, r"tasks\[0\].train\[0\]: .*either between"),
    "typo in a stage": ({"tasks__0__train": [{"betwen": [3, 4]}]}, r"train\[0\].betwen: unknown key; .*'between'"),
    "stages that end": ({"tasks__0__train": [{"between": [3, 4], "until": 5}]}, r"tasks\[0\]: .*the last has none"),
    "a stage of lengths that cannot work": (
        {"tasks__0": {"task": "noisy_recall", "length": 64, "train": [{"among": [64, 63]}]}},
        r"tasks\[0\]: noisy_recall: length 63",
    ),
    "a range upside down": ({"tasks__0__test_ranges": [[9, 6]]}, r"tasks\[0\]: test_ranges: .*\[9, 6\]"),
    "a metric the task has not": (
        {"evaluation__metrics": ["exact_answers"]}, "evaluation.metrics: 'exact_answers' cannot be measured"
    ),
    "unknown metric": ({"evaluation__metrics": ["f1"]}, r"evaluation.metrics\[0\]: .*'per_class'"),
    "a repeat of a half": (
        {"models__0__layers": [{"mixer": "gru", "repeat": 1.5}]}, r"models\[0\].layers: .*repeat must be a whole number"
    ),
    "too many layers": (
        {"models__0__layers": [{"mixer": "gru", "repeat": 10**6}]}, r"models\[0\].layers: .*repeat must be"
    ),
    "negative width": ({"models__0__width": -8}, r"models\[0\].width: width must lie in 1..65536, got -8"),
    "two models of one name": ({"models__1__name": "GRU"}, "two models are called 'GRU'"),
    "a long warm-up": ({"sweep__warmup": 13}, "sweep.warmup 13 is longer than training.steps 12"),
    "a table for a list": ({"tasks": {"task": "parity"}}, "tasks: input should be a list"),
    "a number for a table": ({"training": 3}, "training: .*"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "answer"), WRONG.values(), ids=WRONG)
def test_a_wrong_spec_is_answered_with_its_key(changes: dict[str, Any], answer: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(small(**changes), "small.toml")
    (line,) = caught.value.lines
    assert line.startswith("small.toml: ")
    assert re.search(answer, line), line
    assert "Value error" not in line


def test_all_mistakes_are_told_at_once() -> None:
    changes = {
        "trainnig": {},
        "training__steps": 0,
        "sweep__seeds": 0,
        "tasks__0__task": "x",
        "models__1__width": 0,
    }
    with pytest.raises(SpecError) as caught:
        parse_spec(small(**changes), "small.toml")
    assert len(caught.value.lines) == 5


FILES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "there is no such file"),
    "empty": (b"", "the spec is empty"),
    "only a comment": (b"# nothing\n", "the spec is empty"),
    "not TOML": (b"name: small\n", "not TOML: .*line 1"),
    "JSON": (b'{"name": "small"}', "not TOML"),
    "a key twice": (SMALL.encode().replace(b'name = "small"', b'name = "a"\nname = "b"'), "not TOML: .*overwrite"),
    "not text": (b"\xff\xfe\x00name", "not UTF-8 text"),
    "huge": (b"#" * 1_000_001, "1,000,001 bytes is no spec"),
    "deep": (b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "a date for a number": (
        SMALL.encode().replace(b"steps = 12", b"steps = 2026-01-01"), "training.steps: .*integer"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "answer"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_spec_is_answered(tmp_path: Path, content: bytes | None, answer: str) -> None:
    path = tmp_path / "spec.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=answer):
        read_spec(path)


def test_a_directory_and_an_unreadable_file_are_answered(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="this is a directory"):
        read_spec(tmp_path)
    path = tmp_path / "spec.toml"
    path.write_text(SMALL)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read anything")
    with pytest.raises(SpecError, match="cannot be read: Permission denied"):
        read_spec(path)
