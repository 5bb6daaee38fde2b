"""A study's folder after cut-off copies, edits by hand and full disks: a sentence, and nothing lost in silence."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statelab.sweeps.collect import write_tables
from statelab.sweeps.errors import exit_code_of
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.launch import kept_spec
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import collect, collect_all, collect_curves, collect_metrics, collect_selection
from statelab.sweeps.status import status_of
from tests.sweeps.specs import small
from tests.sweeps.test_worker import run

CHANGES: dict[str, Any] = {"sweep__seeds": 1, "evaluation__every": 6}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(folder, **CHANGES)
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    """A finished study of 4 lanes with all of its files."""
    folder = shutil.copytree(finished, tmp_path / "small")
    keeper(folder, [])
    return folder


def keeper(folder: Path, said: list[str], **changes: object) -> int:
    made = Keeper(parse_spec(small(**{**CHANGES, **changes}), ""), folder, None, said.append)
    return made.start()


def test_a_record_cut_off_is_said_and_run_again(study: Path) -> None:
    broken = sorted(study.glob("lanes/*/result.json"))[0]
    broken.write_text(broken.read_text()[:100])
    assert "1 records cannot be read" in status_of(study).text()
    assert "1 records cannot be read" in write_tables(study, study / "tables", "csv")[-1]
    said: list[str] = []
    assert keeper(study, said) == 1
    assert broken.parent.name in said[0]
    assert "run again" in said[0]


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", '{"lanes": 3}', '{"lanes": ["../../etc"]}', '{"lanes": [null]}', "\x00"],
)
def test_a_study_file_that_is_not_ours_is_a_sentence_and_written_anew(study: Path, content: str) -> None:
    (study / "study.json").write_text(content)
    for look in (status_of, kept_spec, collect):
        with pytest.raises(Exception, match=r"study.json") as caught:
            look(study)
        assert exit_code_of(caught.value)[0] == 2
    said: list[str] = []
    assert keeper(study, said) == 0
    assert "study.json" in said[0]
    assert len(collect(study)) == 4


def test_whatever_is_cut_or_edited_there_is_no_traceback(study: Path) -> None:
    """40 damages at random: looking answers, and the next start takes in what is whole."""
    draw = random.Random(0)
    for _ in range(40):
        folder = shutil.copytree(study, study.parent / "damaged")
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        victim = draw.choice(files)
        _damage(victim, draw)
        for look in (status_of, collect, collect_curves):
            assert _answer(look, folder) in (0, 2), victim
        said: list[str] = []
        waiting = keeper(folder, said)
        whole = len(collect(folder))
        assert waiting + whole == 4, victim
        assert whole == 4 or said, victim
        shutil.rmtree(folder)


def test_whatever_value_is_edited_by_hand_there_is_no_traceback(study: Path) -> None:
    """40 values of records and of study.json, put in place of others at random."""
    draw = random.Random(0)
    lane = min(path.name for path in (study / "lanes").iterdir())
    for _ in range(40):
        name = draw.choice(["study.json", f"lanes/{lane}/result.json", f"lanes/{lane}/curve.jsonl"])
        kept = (study / name).read_text()
        text = kept.splitlines()[0] if name.endswith(".jsonl") else kept
        where, value = draw.choice(list(_places(json.loads(text)))), draw.choice(EDITS)
        edited = json.dumps(_put(json.loads(text), where, value))
        (study / name).write_text(kept.replace(text, edited))
        for look in (status_of, collect_all, collect_metrics, collect_curves, collect_selection):
            assert _answer(look, study) in (0, 2), (name, where, value)
        (study / name).write_text(kept)


EDITS: list[Any] = [
    "x",
    "",
    None,
    [],
    {},
    10**400,
    -1,
    float("nan"),
    True,
    [[1]],
    {"a": 1},
    1e308,
    "\ud800",
    "\0",
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from _places(value[key], (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value[path[0]] = _put(value[path[0]], path[1:], new)
    return value


def _answer(look: Callable[[Path], object], folder: Path) -> int:
    try:
        look(folder)
    except Exception as error:
        code, sentence = exit_code_of(error)
        return code if sentence else 1
    return 0


def _damage(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    at = draw.randrange(len(data))
    match draw.randrange(4):
        case 0:
            path.write_bytes(data[:at])
        case 1:
            path.write_bytes(data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :])
        case 2:
            path.write_bytes(data.replace(b":", b": [", 1))
        case 3:
            path.unlink()
            path.mkdir() if path.name == "result.json" else path.write_bytes(b"\0" * 100)


def test_other_training_makes_a_new_study_and_says_so(study: Path) -> None:
    before = json.loads((study / "study.json").read_text())["study"]
    said: list[str] = []
    assert keeper(study, said, training__steps=13) == 4
    after = json.loads((study / "study.json").read_text())["study"]
    assert before != after
    assert said[0] == f"training.steps 12 → 13 changed: this is a new study, {after}"
    assert said[1].startswith("4 finished lanes")
    assert collect(study).empty
    assert keeper(study, []) == 0, "and back"
    assert len(collect(study)) == 4


def test_more_seeds_rates_and_models_are_the_same_study(study: Path) -> None:
    said: list[str] = []
    assert keeper(study, said, sweep__seeds=2, sweep__learning_rate=[3e-3, 1e-2, 3e-2]) == 8
    assert not said
