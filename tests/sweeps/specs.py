"""A small study for tests, as TOML, and ways of changing it."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

SMALL = """
name = "small"
threshold = 0.6

[[tasks]]
task = "parity"
answer = "running"
length = 6
test_lengths = [6, 9]

[[models]]
name = "GRU"
width = 8
layers = [{ mixer = "gru", conv = 0 }]

[[models]]
name = "Mamba-2"
width = 8
layers = [{ mixer = "mamba2", head_dim = 8, d_state = 4 }]

[training]
steps = 12
batch = 4

[evaluation]
every = 5
rows = 16

[sweep]
learning_rate = [3e-3, 1e-2]
seeds = 3
"""


def small(**changes: Any) -> dict[str, Any]:
    """The small spec as a dict; `changes` replaces whole sections or, with `section__key`, single values."""
    data = copy.deepcopy(tomllib.loads(SMALL))
    for name, value in changes.items():
        *path, last = name.split("__")
        part: Any = data
        for step in path:
            part = part[int(step)] if step.isdigit() else part[step]
        if value is ...:
            del part[last]
        else:
            part[int(last) if last.isdigit() else last] = value
    return data
