"""Hostile specs: each is answered with the key's path and exit code 2, and nothing is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statelab.sweeps.errors import exit_code_of
from statelab.sweeps.read import SpecError, read_spec
from tests.sweeps.hostile import cases

CASES = cases()


def test_there_are_200() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize(("text", "answer"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_hostile_spec_is_answered(tmp_path: Path, text: bytes, answer: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(text)
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    code, said = exit_code_of(caught.value)
    assert code == 2
    assert said is not None
    assert re.search(answer, said), said
    assert all(line.startswith(str(path)) for line in caught.value.lines)
    assert max(map(len, caught.value.lines)) < 2000
    assert list(tmp_path.iterdir()) == [path]
