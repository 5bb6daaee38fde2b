"""What the recall tasks must ask of a row, by dictionaries filled while reading its tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from statelab.tasks.batch import IGNORE
from statelab.tasks.task import Task

Answers = tuple[list[int], list[int] | None, int]


def refusal(make: Callable[[], Task], length: int) -> str:
    """The sentence with which a setting or a length of it is refused; empty if both can be."""
    try:
        make().check_length(length)
    except ValueError as error:
        return str(error)
    return ""


def mqar(task: Any, row: list[int]) -> Answers:
    steps = ((0, task.pairs),) if isinstance(task.pairs, int) else task.pairs
    start = max(length for length, _ in steps if length <= len(row))
    # A row of many pairs can be read as one of fewer, whose other keys are filler, but not the other way round.
    for pairs in sorted((pairs for length, pairs in steps if length == start), reverse=True):
        found = _mqar(task, row, pairs)
        if found is not None:
            return found
    raise AssertionError("no number of pairs fits the row")


def _mqar(task: Any, row: list[int], pairs: int) -> Answers | None:
    """The answers if the row has so many pairs, None if it cannot."""
    half, shown = task.vocab // 2, 2 * (pairs + task.updates)
    targets, distance = [IGNORE] * len(row), [IGNORE] * len(row)
    value: dict[int, int] = {}
    at: dict[int, int] = {}
    updated = []
    for t in range(0, shown, 2):
        if not (1 <= row[t] < half <= row[t + 1] < task.vocab):
            return None
        if t >= 2 * pairs:
            updated.append(row[t])
            if row[t] not in value or (row[t + 1] == value[row[t]] and not task.peer_compat):
                return None
        value[row[t]], at[row[t]] = row[t + 1], t
    asked = [t for t in range(shown, len(row)) if row[t] in value]
    if len(value) != pairs or len(set(updated)) != task.updates or any(t % 2 for t in asked):
        return None
    if sorted(row[t] for t in asked) != sorted(value):
        return None
    for t in asked:
        targets[t], distance[t] = value[row[t]], t - at[row[t]]
    return targets, distance, len(row)


def selective_copying(task: Any, row: list[int]) -> Answers:
    blank, copy = task.vocab - 2, task.vocab - 1
    end = row.index(copy)
    places = [t for t in range(end) if row[t] != blank]
    assert len(places) == task.copies == len(row) - 1 - end
    assert set(row[end + 1 :]) == {blank}
    targets, distance = [IGNORE] * len(row), [IGNORE] * len(row)
    for i, place in enumerate(places):
        targets[end + 1 + i], distance[end + 1 + i] = row[place], end + 1 + i - place
    return targets, distance, len(row)


def fuzzy_recall(task: Any, row: list[int]) -> Answers:
    answers, distance, _ = fuzzy_answers(task, row)
    return answers, distance, len(row) - row.count(task.kinds["pad"].start)


def fuzzy_answers(task: Any, row: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Targets, distances and numbers of the answers, of rows whose last key was shown before."""
    kind_of = {token: kind for kind, ids in task.kinds.items() for token in ids}
    targets, distance, group = ([IGNORE] * len(row) for _ in range(3))
    value: dict[tuple[int, ...], tuple[int, ...]] = {}
    last: dict[tuple[int, ...], int] = {}
    number, place = 0, 0
    runs = [(kind, tuple(tokens)) for kind, tokens in groupby(row, key=lambda token: kind_of[token])]
    for (kind, tokens), (_, following) in zip(runs, [*runs[1:], ("", ())], strict=True):
        place += len(tokens)
        if kind != "key":
            assert kind != "pad" or place == len(tokens), "padding inside"
            continue
        assert len(set(tokens)) == len(tokens) <= task.key_tokens, "a key of distinct tokens"
        at_end = place + len(following) == len(row)
        given = value[tokens] if at_end else following
        assert len(set(given)) == len(given) <= task.value_tokens, "a value of distinct tokens"
        assert given[: len(following)] == following
        if (tokens in value and task.multi_query) or at_end:
            assert value[tokens] == given, "a key keeps its value"
            for i, token in enumerate(given):
                t = place - 1 + i
                targets[t], distance[t], group[t] = token, place - last[tokens], number
            number += 1
        value[tokens], last[tokens] = given, place
    return targets, distance, group


def needle(task: Any, row: list[int]) -> Answers:
    targets, distance, _ = needle_answers(task, row)
    return targets, distance, len(row)


def needle_answers(task: Any, row: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Targets, distances and numbers of the answers, of rows whose keys differ."""
    kind_of = {token: kind for kind, ids in task.kinds.items() for token in ids}
    kinds = [kind_of[token] for token in row]
    values: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    places: dict[tuple[int, ...], list[int]] = {}
    query, answer = kinds.index("query"), kinds.index("answer")
    for t in (t for t in range(query) if kinds[t] == "needle"):
        is_, end = kinds.index("is", t), kinds.index("end", t)
        assert set(kinds[t + 1 : is_]) == {"key"}
        assert set(kinds[is_ + 1 : end]) == {"value"}
        key = tuple(row[t + 1 : is_])
        values.setdefault(key, []).append(tuple(row[is_ + 1 : end]))
        places.setdefault(key, []).append(is_ + 1)
    (size,) = {len(key) for key in values}
    keys = [tuple(row[t : t + size]) for t in range(query + 1, answer, size)]
    targets, distance, group = ([IGNORE] * len(row) for _ in range(3))
    told = [(value, at) for key in keys for value, at in zip(values[key], places[key], strict=True)]
    t = answer
    for number, (value, at) in enumerate(told):
        for token in value:
            targets[t], group[t] = token, number
            distance[t] = answer + 1 + number * len(value) - at
            t += 1
    assert t == len(row)
    assert row[answer + 1 :] == targets[answer:-1], "answers are read after they were asked for"
    return targets, distance, group
