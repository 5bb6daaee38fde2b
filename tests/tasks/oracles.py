"""What each task must ask of a row, worked out slowly from its tokens alone and by other code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statelab.tasks.batch import IGNORE
from tests.tasks import algebra, recall

Answers = tuple[list[int], list[int] | None, int]
"""Targets, distances (None where a task has none) and the number of tokens before padding."""


def parity(task: Any, row: list[int]) -> Answers:
    if task.answer == "running":
        return [sum(row[: t + 1]) % task.modulus for t in range(len(row))], None, len(row)
    size = row.index(0) if 0 in row else len(row)
    assert not any(row[size:]), "a digit after the padding"
    targets = [IGNORE] * len(row)
    targets[size - 1] = 1 + sum(token - 1 for token in row[:size]) % task.modulus
    return targets, None, size


def noisy_recall(task: Any, row: list[int]) -> Answers:
    content = task.vocab - task.noise_vocab - (0 if task.multi_query else 1)
    keys, values = set(range(content // 2)), set(range(content // 2, content))
    noise = set(range(content, content + task.noise_vocab))
    targets, distance = [IGNORE] * len(row), [IGNORE] * len(row)
    value: dict[int, int] = {}
    last: dict[int, int] = {}
    end = len(row) - (1 if task.multi_query else 2)
    if not task.multi_query:
        assert row[-2] == task.vocab - 1, "no copy token before the last pair"
    for t in range(0, end, 2):
        first, second = row[t], row[t + 1]
        if first in noise:
            assert second in noise, "noise comes in pairs"
            continue
        assert first in keys
        assert second in values
        if first in value:
            assert second == value[first], "a key keeps its value"
            if task.multi_query:
                targets[t], distance[t] = second, t - last[first]
        value[first], last[first] = second, t
    targets[-1], distance[-1] = value[row[-1]], len(row) - 1 - last[row[-1]]
    return targets, distance, len(row)


ORACLES: dict[str, Callable[[Any, list[int]], Answers]] = {
    "bracket_arithmetic": algebra.bracket_arithmetic,
    "cycle_navigation": algebra.cycle_navigation,
    "even_pairs": algebra.even_pairs,
    "fuzzy_recall": recall.fuzzy_recall,
    "group_word": algebra.group_word,
    "modular_arithmetic": algebra.modular_arithmetic,
    "mqar": recall.mqar,
    "needle": recall.needle,
    "noisy_recall": noisy_recall,
    "parity": parity,
    "selective_copying": recall.selective_copying,
}
