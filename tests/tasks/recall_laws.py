"""The reference generators of the recall tasks, written slowly from their descriptions, and what is compared.

Each gives one row: its tokens (all inputs), targets and distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from statelab.tasks.batch import IGNORE, Batch
from tests.tasks.algebra import assert_same_law

Row = tuple[list[int], list[int], list[int]]


def assert_same_rows(batch: Batch, reference: Callable[[Random], Row], vocab: int) -> None:
    """Rows of a first lane and as many of a reference are of one law, in each way of counting them below."""
    random = Random(0)
    assert batch.distance is not None
    own = [tensor[0].numpy() for tensor in (batch.inputs, batch.targets, batch.distance)]
    rows = [reference(random) for _ in range(len(own[0]))]
    other = [np.array(parts) for parts in zip(*rows, strict=True)]
    for (name, found), (_, expected) in zip(_cells(own, vocab), _cells(other, vocab), strict=True):
        number = 1 + max(found.max(), expected.max())
        try:
            assert_same_law(*(np.bincount(cells, minlength=number) for cells in (found, expected)))
        except AssertionError as error:
            raise AssertionError(f"{name}: {str(error)[:200]}") from error


def _cells(rows: list[Any], vocab: int) -> Iterator[tuple[str, Any]]:
    """Each row's cell `[B]` in each way of counting: one a row, since within a row counts hang together."""
    inputs, targets, distance = rows
    number, T = inputs.shape
    for t in np.linspace(0, T - 3, 6).astype(int):
        yield f"the tokens at {t} and {t + 1}", inputs[:, t] * vocab + inputs[:, t + 1]
        yield f"the tokens at {t} and {t + 2}", inputs[:, t] * vocab + inputs[:, t + 2]
    asked = targets != IGNORE
    yield "how many are scored", asked.sum(1)
    first, last = asked.argmax(1), T - 1 - asked[:, ::-1].argmax(1)
    yield "the first and the last of them", first * T + last
    row = np.arange(number)
    for name, place in (("first", first), ("last", last)):
        yield f"the {name} query and its answer", inputs[row, place] * vocab + targets[row, place]
        yield f"the {name} distance", distance[row, place]
        yield f"the {name} distance, by place", distance[row, place] * T + place
    yield "how often the last token came", (inputs == inputs[:, -1:]).sum(1)
    yield "how many different tokens", np.array([len(set(tokens)) for tokens in inputs.tolist()])


def mqar(
    random: Random, vocab: int, pairs: int, length: int, power: float, filler: str, updates: int, compat: bool
) -> Row:
    """zoology's multiquery_ar, and with updates its forgetting_mqar, its faults mended unless `compat`."""
    half = vocab // 2
    keys = random.sample(range(1, half), pairs)
    values = random.sample(range(half, vocab), pairs)
    row = [token for pair in zip(keys, values, strict=True) for token in pair]
    value, place = list(values), [2 * i for i in range(pairs)]
    for j, i in enumerate(random.sample(range(pairs), updates)):
        not_this = values[j] if compat else values[i]
        value[i] = random.choice([v for v in range(half, vocab) if v != not_this])
        place[i] = len(row)
        row += [keys[i], value[i]]
    drawn: list[int] = []
    for _ in range(pairs):
        left = [j for j in range((length - len(row)) // 2) if j not in drawn]
        drawn += random.choices(left, [(j + 1) ** (power - 1) for j in left])
    others = [token for token in range(vocab) if compat or token not in keys]
    start = len(row)
    row += random.choices(others if filler == "random" else [0], k=length - start)
    targets, distance = [IGNORE] * length, [IGNORE] * length
    for i, slot in enumerate(drawn):
        t = start + 2 * slot
        row[t], targets[t], distance[t] = keys[i], value[i], t - place[i]
    return row, targets, distance


def selective_copying(random: Random, vocab: int, copies: int, length: int, compat: bool) -> Row:
    """MAD's selective copying; unless `compat` with the tokens anywhere."""
    tokens = random.choices(range(vocab - 2), k=copies)
    front = length - copies - 1
    if compat:
        row = list(tokens)
        # From behind, so that the places in front stay what they are.
        for place in sorted(random.choices(range(copies), k=front - copies), reverse=True):
            row.insert(place, vocab - 2)
        places = [t for t in range(front) if row[t] != vocab - 2]
    else:
        places = sorted(random.sample(range(front), copies))
        row = [vocab - 2] * front
        for token, place in zip(tokens, places, strict=True):
            row[place] = token
    row += [vocab - 1] + [vocab - 2] * copies
    ago = [front + 1 + i - place for i, place in enumerate(places)]
    return row, [IGNORE] * (front + 1) + tokens, [IGNORE] * (front + 1) + ago


class _Fuzzy:
    """A row of MAD's fuzzy in-context recall, grown pair by pair."""

    def __init__(self, random: Random, task: Any, train: bool) -> None:
        self.random, self.task, self.train = random, task, train
        self.kinds = {kind: list(ids) for kind, ids in task.kinds.items()}
        self.row: list[int] = []
        self.scored: list[tuple[int, int, int]] = []
        self.told: dict[tuple[int, ...], list[int]] = {}
        self.last: dict[tuple[int, ...], int] = {}

    def word(self, kind: str, full: bool = False) -> list[int]:
        most = self.task.key_tokens if kind == "key" else self.task.value_tokens
        return self.random.sample(self.kinds[kind], most if full else self.random.randint(1, most))

    def pair(self) -> tuple[list[int], list[int]]:
        return self.word("key", not self.train), self.word("value")

    def add(self, key: list[int], value: list[int], ask: bool) -> None:
        value = self.told.setdefault(tuple(key), value)
        start = len(self.row)
        self.row += key + value
        if ask:
            ago = start - self.last[tuple(key)] if tuple(key) in self.last else start
            self.scored += [(start + len(key) + i, token, ago) for i, token in enumerate(value)]
        self.last[tuple(key)] = start

    def draw(self) -> None:
        key, value = self.pair()
        if self.random.random() < self.task.noise:
            self.row += self.random.choices(self.kinds["noise"], k=len(key) + len(value))
        else:
            self.add(key, value, self.task.multi_query and tuple(key) in self.last)


def fuzzy_recall(random: Random, task: Any, length: int, train: bool) -> Row:
    """MAD's fuzzy in-context recall, without noise where the task is not `peer_compat`."""
    grown = _Fuzzy(random, task, train)
    probe, answer = grown.pair()
    grown.told[tuple(probe)] = answer
    size = len(probe) + len(answer)
    at, limit = random.randrange(length - 2 * size), length - size - task.key_tokens - task.value_tokens
    before: Any = None
    while len(grown.row) < limit:
        if len(grown.row) >= at and tuple(probe) not in grown.last:
            grown.add(probe, answer, False)
            continue
        before = len(grown.row), len(grown.scored), dict(grown.last)
        grown.draw()
    if tuple(probe) not in grown.last and not task.peer_compat:
        cut, scored, last = before
        dropped = grown.row[cut:]
        grown.row, grown.scored, grown.last = grown.row[:cut], grown.scored[:scored], last
        grown.add(probe, answer, False)
        keys = set(grown.kinds["key"])
        if len(grown.row) < limit:
            key = [token for token in dropped if token in keys]
            grown.add(key, [], task.multi_query and tuple(key) in grown.last)
        while len(grown.row) < limit:
            grown.draw()
    if not task.multi_query:
        grown.row.append(task.vocab - 1)
    grown.add(probe, answer, True)
    pad = length + 1 - len(grown.row)
    row = [grown.kinds["pad"][0]] * pad + grown.row
    targets, distance = [IGNORE] * length, [IGNORE] * length
    for place, token, ago in grown.scored:
        targets[pad + place - 1], distance[pad + place - 1] = token, ago
    return row[:-1], targets, distance


def needle(random: Random, task: Any, length: int) -> Row:
    """A row of RULER's needle tasks in tokens; a word that has to differ is drawn anew until it does."""
    shape, kinds = task.shape, {kind: list(ids) for kind, ids in task.kinds.items()}

    def word(kind: str, words: Any, others: list[list[int]]) -> list[int]:
        digits = [random.randrange(words.first, words.base)]
        digits += random.choices(range(words.base), k=words.tokens - 1)
        found = [kinds[kind][digit] for digit in digits]
        if found in others:
            return word(kind, words, others)
        others.append(found)
        return found

    def written(key: list[int], value: list[int]) -> list[int]:
        return [1, *key, 2, *value, 3]

    used: list[list[int]] = []
    values: list[list[int]] = []
    keys = [word("key", shape.key, used) for _ in range(shape.keys)]
    needles = [(key, word("value", shape.value, values)) for key in keys for _ in range(shape.values)]
    room = length - 1 - 2 - shape.queries * shape.key.tokens - shape.answers - len(needles) * shape.needle
    filler = random.choices(kinds["filler"], k=room)
    if shape.haystack == "block":
        pieces = [[kinds["filler"][i % task.block]] for i in range(room)]
        places = [task.block * i for i in random.sample(range(-(-room // task.block)), len(needles))]
    elif shape.haystack == "essay":
        pieces = [[token] for token in filler]
        grid = [round(float(depth)) for depth in np.linspace(0, 100, 40)]
        places = [room * depth // 100 for depth in random.sample(grid, len(needles))]
    else:
        count, left = divmod(room, shape.needle)
        pieces = [written(word("key", shape.key, used), word("value", shape.value, [])) for _ in range(count)]
        places = [left + i for i in random.sample(range(count), len(needles))]
        pieces = [*([token] for token in filler[:left]), *pieces]
    # From behind, so that the places in front stay what they are.
    for place, (key, value) in sorted(zip(places, needles, strict=True), key=lambda x: -x[0]):
        pieces.insert(place, written(key, value))
    text = [0, *(token for piece in pieces for token in piece)]
    asked = random.sample(keys, shape.queries)
    row = [*text, 4, *(token for key in asked for token in key), 5]
    start = len(row) - 1
    told = [
        (t + 2 + len(key), text[t + 2 + len(key) : t + 2 + len(key) + shape.value.tokens])
        for key in asked
        for t in range(len(text))
        if text[t] == 1 and text[t + 1 : t + 1 + len(key)] == key
    ]
    row += [token for _, value in told for token in value]
    targets, distance = [IGNORE] * (length - 1), [IGNORE] * (length - 1)
    t = start
    for place, value in told:
        ago = t + 1 - place
        for token in value:
            targets[t], distance[t] = token, ago
            t += 1
    return row[:-1], targets, distance
