"""The algebraic tasks worked out slowly: permutations composed one by one, expressions read by Python."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, permutations, product
from random import Random
from typing import Any

import numpy as np
from scipy import stats

from statelab.tasks.batch import IGNORE, Batch
from tests.tasks.statistics import THRESHOLD

Answers = tuple[list[int], None, int]
Points = tuple[int, ...]


@cache
def points(group: str) -> list[Points]:
    """The elements of S3, A4, Z5, D4 … or A4xZ5 as permutations of 0, 1, 2 …, in the published order."""
    found: list[Points] = [()]
    for factor in group.split("x"):
        n, start = int(factor[1:]), len(found[0])
        match factor[0]:
            case "S":
                own = list(permutations(range(n)))
            case "A":
                own = [p for p in permutations(range(n)) if (n - len(cycles(p))) % 2 == 0]
            case "Z":
                own = [tuple((i + k) % n for i in range(n)) for k in range(n)]
            case _:
                turned = [tuple((i + k) % n for i in range(n)) for k in range(n)]
                own = turned + [tuple((k - i) % n for i in range(n)) for k in range(n)]
        found = [a + tuple(start + i for i in b) for a, b in product(found, own)]
    return found


def cycles(p: Points) -> set[frozenset[int]]:
    found = set()
    for i in range(len(p)):
        cycle = [i]
        while p[cycle[-1]] != i:
            cycle.append(p[cycle[-1]])
        found.add(frozenset(cycle))
    return found


def group_word(task: Any, row: list[int]) -> Answers:
    members = points(task.group)
    place = {p: i for i, p in enumerate(members)}
    word = row
    if task.peer_compat:
        assert row[0] == len(members) + 1, "no BOS"
        word = row[1:]
    if task.generators == "swaps":
        assert all(sum(a != b for a, b in enumerate(members[x])) in (0, 2) for x in word)
    total, targets = members[0], []
    for x in word:
        total = tuple(total[i] for i in members[x])
        targets.append(place[total])
    return ([row[0]] if task.peer_compat else []) + targets, None, len(row)


def read(task: Any, row: list[int], pad: int) -> tuple[str, list[int]]:
    """What is written before "=", and the tokens before padding."""
    shown = row[: row.index(pad)] if pad in row else row
    assert set(row[len(shown) :]) <= {pad}, "a token after the padding"
    assert task.describe(shown[-1]) == "="
    return "".join(map(task.describe, shown[:-1])), shown


def asked(row: list[int], size: int, answer: int) -> Answers:
    targets = [IGNORE] * len(row)
    targets[size - 1] = answer
    return targets, None, size


def modular_arithmetic(task: Any, row: list[int]) -> Answers:
    text, shown = read(task, row, 0)
    assert all(token >= 5 for token in shown[::2])
    assert all(token in ((1, 2, 3) if task.multiply else (1, 2)) for token in shown[1:-1:2])
    return asked(row, len(shown), 5 + eval(text) % task.modulus)


def bracket_arithmetic(task: Any, row: list[int]) -> Answers:
    if task.peer_compat:
        after = row.index(task.modulus + 5) + 1
        assert row[after] == 0
        row = [*row[:after], task.modulus + 6, *row[after + 1 :]]
    text, shown = read(task, row, task.modulus + 6)
    assert task.multiply or "*" not in text
    tree, rest = parse(shown[:-1], task.modulus)
    assert not rest
    assert value(tree, task.modulus) == eval(text) % task.modulus
    return asked(row, len(shown), value(tree, task.modulus))


def even_pairs(task: Any, row: list[int]) -> Answers:
    size = row.index(0) if 0 in row else len(row)
    assert not any(row[size:]), "a bit after the padding"
    pairs = sum(a != b for a, b in pairwise(row[:size]))
    return asked(row, size, 1 + pairs % 2)


def cycle_navigation(task: Any, row: list[int]) -> Answers:
    size = row.index(0) if 0 in row else len(row)
    assert not any(row[size:]), "a move after the padding"
    place, places = 0, []
    for move in row[:size]:
        forward = move <= task.reach + 1
        place += move - 1 if forward else -(move - task.reach - 1)
        places.append(2 * task.reach + 2 + place % task.cycle)
    if task.answer == "last":
        return asked(row, size, places[-1])
    return places + [IGNORE] * (len(row) - size), None, size


Tree = tuple[Any, ...]
"""("leaf", digit, length) or ("inner", left, operator, right, length): operator 0, 1, 2 for + − ×."""


def parse(tokens: list[int], m: int) -> tuple[Tree, list[int]]:
    """The first expression of these tokens, by the grammar, and what is behind it."""
    head, *rest = tokens
    if head < m:
        return ("leaf", head, 1), rest
    if head == m + 1:
        assert rest[0] < m
        return ("leaf", rest[0], 2), rest[1:]
    assert head == m + 3, "neither digit nor minus nor bracket"
    left, (operator, *rest) = parse(rest, m)
    if operator == m + 4:
        assert left[0] == "leaf"
        assert left[-1] <= 2
        return ("leaf", left[1], left[-1] + 2), rest
    right, (close, *rest) = parse(rest, m)
    assert close == m + 4
    return ("inner", left, operator - m, right, 3 + left[-1] + right[-1]), rest


def value(tree: Tree, m: int) -> int:
    if tree[0] == "leaf":
        return int(-tree[1] if tree[-1] in (2, 4) else tree[1]) % m
    left, right = value(tree[1], m), value(tree[3], m)
    return (left + right, left - right, left * right)[tree[2]] % m


def expression(random: Random, length: int, m: int, multiply: bool) -> list[int]:
    """An expression of exactly this length, by the grammar's recursion."""
    if length <= 2:
        return [m + 1] * (length - 1) + [random.randrange(m)]
    if length <= 4:
        return [m + 3, *expression(random, length - 2, m, multiply), m + 4]
    left = random.randint(1, length - 4)
    operator = m + random.randrange(3 if multiply else 2)
    parts = [expression(random, size, m, multiply) for size in (left, length - 3 - left)]
    return [m + 3, *parts[0], operator, *parts[1], m + 4]


def published_sum(random: Random, low: int, high: int, m: int) -> list[int]:
    """A row of xlstm's modular arithmetic of sizes low … high, without its answer and unpadded."""
    least, most = min((low + 1) // 2, (high + 1) // 2), (high + 1) // 2
    size = 2 * random.randint(least, most) - 1
    row = [random.choice((1, 2, 3)) if t % 2 else 5 + random.randrange(m) for t in range(size - 1)]
    row[-1] = 4
    return row


def published_brackets(random: Random, low: int, high: int, m: int, multiply: bool) -> list[int]:
    """A row of unlocking_state_tracking's arithmetic with brackets, likewise."""
    size = max(random.randint(low, high), 5)
    return [*expression(random, size - 3, m, multiply), m + 5]


def bigrams(rows: list[list[int]], vocab: int) -> Any:
    """How often each token follows each, counted over rows."""
    counts = np.zeros(vocab * vocab)
    for row in rows:
        tokens = np.asarray(row)
        counts += np.bincount(tokens[:-1] * vocab + tokens[1:], minlength=vocab * vocab)
    return counts


def unpadded(batch: Batch) -> list[list[int]]:
    """The rows of the first lane, cut to their lengths."""
    return [row[:size] for row, size in zip(batch.inputs[0].tolist(), batch.length[0].tolist(), strict=True)]


def assert_same_law(counts: Any, others: Any) -> None:
    """Two samples' counts of the same cells differ by no more than chance."""
    table = np.asarray([counts, others], dtype=np.float64)
    common = table.sum(0) >= 10
    table = np.concatenate([table[:, common], table[:, ~common].sum(1, keepdims=True)], axis=1)
    p_value = float(stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue)
    assert p_value > THRESHOLD, f"p = {p_value:.2g}: {table.tolist()}"
