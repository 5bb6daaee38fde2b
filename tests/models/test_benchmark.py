"""The population benchmark at a size that takes no time."""

from __future__ import annotations

import pytest
import torch

from statelab.models.benchmark import tables

CPU = torch.device("cpu")


def test_each_way_has_a_time_and_its_distance_from_float64() -> None:
    sizes = {"lanes": 2, "steps": 2, "batch": 2, "length": 8}
    (table,) = tables(CPU, ["prototype"], "float32", sizes=sizes)
    head, _, one, population, rows = table.splitlines()
    assert "55,848 parameters" in head
    assert rows.split()[:2] == ["rows", "alone"]
    for line in (one, population):
        milliseconds, _, _, error, way = line[25:].split()
        assert float(milliseconds) > 0
        assert 0 < float(error) < 1e-5
        assert way == "eager"


@pytest.mark.parametrize(
    ("case", "arithmetic", "profile", "sentence"),
    [
        ("prototyp", "float32", "", "unknown case 'prototyp'; known: baseline, orthogonal, prototype"),
        ("prototype", "float16", "", "unknown arithmetic 'float16'"),
        ("prototype", "tf32", "", "tf32"),
        ("prototype", "float32", "captured", "a profile is of a CUDA device's kernels"),
    ],
)
def test_what_cannot_be_measured_is_refused(case: str, arithmetic: str, profile: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        list(tables(CPU, [case], arithmetic, profile))
