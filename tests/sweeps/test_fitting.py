"""Populations are made as large as memory allows, before the first step."""

from __future__ import annotations

import pytest
import torch

from statelab.models.memory import Memory
from statelab.sweeps import fitting
from statelab.sweeps.cells import cells_of
from statelab.sweeps.fitting import in_fitting_parts, memory_of
from statelab.sweeps.read import parse_spec
from tests.sweeps.specs import small

CARD = torch.device("cuda")
LANE = 1 << 20


@pytest.mark.parametrize(
    ("free", "sizes"), [(6, [6]), (5, [3, 3]), (2, [2, 2, 2]), (1, [1] * 6), (0, [1] * 6)]
)
def test_lanes_are_parted_evenly_and_in_order(
    monkeypatch: pytest.MonkeyPatch, free: int, sizes: list[int]
) -> None:
    cell = cells_of(parse_spec(small(), ""))[0]
    lanes = cell.lanes[:6]
    assert len(lanes) == 6
    memory = Memory(state=LANE, step=0, evaluation=0, rows=0, fixed=0, apart=True)
    monkeypatch.setattr(fitting, "predict", lambda *_: memory)
    monkeypatch.setattr(fitting, "free_bytes", lambda _: free * LANE)
    said: list[str] = []
    parts = in_fitting_parts(cell, lanes, CARD, said.append)
    assert [len(part) for part in parts] == sizes
    assert [lane for part in parts for lane in part] == list(lanes)
    assert len(said) == (len(sizes) > 1)


def test_where_nothing_can_be_told_lanes_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Memory:
        raise ValueError("its memory cannot be told beforehand (…)")

    cell = cells_of(parse_spec(small(), ""))[0]
    monkeypatch.setattr(fitting, "predict", refuse)
    monkeypatch.setattr(fitting, "free_bytes", lambda _: 0)
    assert in_fitting_parts(cell, cell.lanes, CARD, print) == [cell.lanes]
    assert in_fitting_parts(cell, (), CARD, print) == []
    assert "cannot be told" in memory_of(cell, 2, torch.device("cpu"))


def test_memory_is_told_in_words() -> None:
    cell = cells_of(parse_spec(small(), ""))[0]
    assert "MiB of memory" in memory_of(cell, 2, torch.device("cpu"))
