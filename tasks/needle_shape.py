"""The sizes of needle tasks: RULER's table, and what fits in a row. Plain numbers, no torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

Variant = Literal[
    "single_1", "single_2", "single_3", "multikey_1", "multikey_2", "multikey_3", "multivalue", "multiquery"
]
Haystack = Literal["block", "essay", "needles"]

MARKS = ("start", "needle", "is", "end", "query", "answer")
START, NEEDLE, IS, END, QUERY, ANSWER = range(len(MARKS))
DEPTHS = 40
"""How many depths a needle may have in an essay."""


class Words(NamedTuple):
    """Words of so many tokens below `base`, the first of which is at least `first`."""

    tokens: int
    base: int
    first: int = 0

    @property
    def number(self) -> int:
        """How many such words there are."""
        return (self.base - self.first) * int(self.base ** (self.tokens - 1))


class Shape(NamedTuple):
    """What a row is made of: the haystack, keys and values as words, and how many there are of each.

    `keys` and `values`, of each key, count those of the needles put into the haystack, not the haystack's own.
    """

    haystack: Haystack
    key: Words
    value: Words
    keys: int
    values: int
    queries: int
    block: int

    @property
    def needles(self) -> int:
        """How many needles are put into the haystack."""
        return self.keys * self.values

    @property
    def needle(self) -> int:
        """Tokens of a needle: three marks, a key and a value."""
        return self.key.tokens + self.value.tokens + 3

    @property
    def answers(self) -> int:
        """Tokens of the answers."""
        return self.queries * self.values * self.value.tokens

    @property
    def frame(self) -> int:
        """Tokens that are neither haystack nor needles: the start, the query with its keys, the answers."""
        return 3 + self.queries * self.key.tokens + self.answers

    @property
    def least(self) -> int:
        """The smallest length: of a haystack, where the needles can be put, and no less than a token."""
        haystack = {
            "block": (self.needles - 1) * self.block + 1,
            "essay": 1,
            "needles": self.needles * self.needle,
        }
        return self.frame + self.needles * self.needle + haystack[self.haystack]

    def hay(self, length: int) -> int:
        """Tokens of the haystack in a row of this length."""
        return length - self.frame - self.needles * self.needle

    def places(self, length: int) -> int:
        """How many places there are to put a needle: before each block or needle, or the depths of an essay."""
        hay = self.hay(length)
        return {"block": -(-hay // self.block), "essay": DEPTHS, "needles": hay // self.needle}[self.haystack]

    def distractors(self, length: int) -> int:
        """How many needles the haystack itself is made of."""
        return self.places(length) if self.haystack == "needles" else 0


class Preset(NamedTuple):
    """A row of RULER's table: the haystack, the kinds of keys and values, and how many there are of each."""

    haystack: Haystack
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    values: int = 1
    queries: int = 1


TOKENS = {"word": 2, "number": 7, "uuid": 32}
"""Tokens of a key or value of each kind: adjective and noun, digits, hexadecimal digits."""

PRESETS: dict[Variant, Preset] = {
    "single_1": Preset("block"),
    "single_2": Preset("essay"),
    "single_3": Preset("essay", value="uuid"),
    "multikey_1": Preset("essay", keys=4),
    "multikey_2": Preset("needles"),
    "multikey_3": Preset("needles", key="uuid", value="uuid"),
    "multivalue": Preset("essay", values=4),
    "multiquery": Preset("essay", keys=4, queries=4),
}
