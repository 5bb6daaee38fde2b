"""The kernels' benchmark: every op has a line, with an error that says the compared forms agree."""

from __future__ import annotations

import pytest
import torch

from statelab.kernels.benchmark import HEADER, WORKS, lines

SMALL = {"B": 1, "T": 6, "H": 2, "d": 4}


def test_every_op_is_timed_and_compared() -> None:
    found = list(lines(torch.device("cpu"), list(WORKS), ["bf16"], dict(SMALL)))
    assert found[1] == HEADER
    rows = [line.split() for line in found[2:] if "float32" in line]
    assert len(rows) == len(WORKS)
    for row in rows:
        assert row[0] in ("chunk", "reference")
        assert float(row[3]) > 0
        assert max(map(float, row[-2:])) < 1e-4


def test_an_unknown_op_is_named() -> None:
    with pytest.raises(ValueError, match="unknown op 'lstm'; known: mlstm, orthogonal"):
        next(lines(torch.device("cpu"), ["lstm"], ["bf16"], {}))
