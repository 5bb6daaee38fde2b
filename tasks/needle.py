"""Needle in a haystack: what was the value of this key, told once in a long text?

RULER's eight tasks (Hsieh et al., "RULER: What's the real context size of your long-context language models?",
2024, and its `niah.py` and `synthetic.yaml`), written in tokens for small models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.needle_shape import DEPTHS, MARKS, PRESETS, TOKENS, Shape, Variant, Words
from statelab.tasks.task import LossOn, Task

if TYPE_CHECKING:
    from statelab.tasks.batch import Batch
    from statelab.tasks.rows import Rows

_SIGNS = "<[=]?:"
_DIGITS, _HEX = 10, 16


@dataclass(frozen=True, kw_only=True)
class Needle(Task):
    """Needles "[ key = value ]" in a haystack, then "? key : value", where the value is asked for.

    A length counts the row with its last answer: `inputs` has length − 1 tokens, and each token of an answer
    is read after it was asked for (forced decoding). A word is 2 tokens, a number 7 digits, the first not 0,
    a uuid 32 hexadecimal digits. `variant` is a row of RULER's table, whose counts can be set by themselves:

        variant      haystack  key   value   keys  values of each  queried
        single_1     block     word  number  1     1               1
        single_2     essay     word  number  1     1               1
        single_3     essay     word  uuid    1     1               1
        multikey_1   essay     word  number  4     1               1
        multikey_2   needles   word  number  1     1               1
        multikey_3   needles   uuid  uuid    1     1               1
        multivalue   essay     word  number  1     4               1
        multiquery   essay     word  number  4     1               4

    The haystack is one block of filler repeated, or an essay of uniform filler (RULER's begins alike in every
    row), or needles with keys of their own. Queried keys stand together in the order drawn; the answers follow
    in that order and, for one key, in the order of the text. `Batch.group` numbers the answers, so that each
    can be right as a whole. (RULER scores them as a set, and lists a key's values as it drew them.)

    Keys differ, and so do the values of all needles that are not the haystack's. With `ruler_collisions` they
    are drawn as RULER does, which looks at neither.

        Needle(key_tokens=1, value_tokens=2, word_vocab=4, filler_vocab=3, block=3) at 24
            in     < f0 f1 f2  [ k1  = v2 v6  ] f0 f1 f2 f0 f1 f2 f0 f1 f2  ? k1  : v2
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · v2 v6
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · 15 15

        Needle(variant='multiquery', key_tokens=1, value_tokens=1, keys=2, queries=2, word_vocab=9) at 20
            in      <   [  k8   =  v2   ] f55 f56   [  k6   =  v1   ] f51   ?  k8  k6   :  v2
            out     ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·  v2  v1
            ago     ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·  14   8
    """

    variant: Annotated[Variant, "which of RULER's tasks"] = "single_1"
    key_tokens: Annotated[int | None, "tokens of a key; None: the variant's"] = None
    value_tokens: Annotated[int | None, "tokens of a value; None: the variant's"] = None
    keys: Annotated[int | None, "keys beside those of a haystack of needles; None: the variant's"] = None
    values: Annotated[int | None, "values of each of these keys; None: the variant's"] = None
    queries: Annotated[int | None, "how many of these keys are queried; None: the variant's"] = None
    word_vocab: Annotated[int, "how many tokens words are made of"] = 64
    filler_vocab: Annotated[int, "how many tokens filler is made of"] = 64
    block: Annotated[int, "tokens of the block that single_1 repeats"] = 16
    loss_on: Annotated[LossOn, "train on every next token or on what is scored"] = "scored"
    ruler_collisions: Annotated[bool, "keys may be the same and values too, as in RULER"] = False

    def __post_init__(self) -> None:
        if self.variant not in PRESETS:
            raise ValueError(f"needle: variant is {self.variant!r}; use one of {', '.join(PRESETS)}")
        if self.loss_on not in ("all", "scored"):
            raise ValueError(f"needle: loss_on is {self.loss_on!r}; use 'all' or 'scored'")
        for name in (*_COUNTS, "word_vocab", "filler_vocab", "block"):
            count = getattr(self, name)
            if count is not None and not 1 <= count <= 1 << 20:
                raise ValueError(f"needle: {name} is {count}; use 1 … 2^20")
        shape = self.shape
        if shape.queries > shape.keys:
            raise ValueError(f"needle: {shape.queries} queries of {shape.keys} keys; use queries <= keys")
        if shape.haystack == "block" and self.block > self.filler_vocab:
            raise ValueError(
                f"needle: block is {self.block}; use 1 … {self.filler_vocab}, which filler_vocab is"
            )
        if shape.haystack == "essay" and shape.needles > DEPTHS:
            raise ValueError(
                f"needle: {shape.needles} needles for the {DEPTHS} depths of an essay; use fewer"
            )
        self._check_different("values", shape.needles, shape.value)
        self._check_different("keys", shape.keys, shape.key)

    def _check_different(self, what: str, needed: int, words: Words, where: str = "") -> None:
        if needed > words.number and not self.ruler_collisions:
            raise ValueError(
                f"needle: {where}{needed} different {what} of {words.tokens} tokens are needed and there are "
                f"{words.number}; use more {what[:-1]}_tokens, fewer needles or ruler_collisions"
            )

    @property
    def shape(self) -> Shape:
        """The variant with what is set otherwise."""
        preset = PRESETS[self.variant]
        key = Words(self.key_tokens or TOKENS[preset.key], _HEX if preset.key == "uuid" else self.word_vocab)
        value = (_HEX, 0) if preset.value == "uuid" else (_DIGITS, 1)
        return Shape(
            haystack=preset.haystack,
            key=key,
            value=Words(self.value_tokens or TOKENS[preset.value], *value),
            keys=self.keys or preset.keys,
            values=self.values or preset.values,
            queries=self.queries or preset.queries,
            block=self.block,
        )

    @property
    def vocab_size(self) -> int:
        return self.kinds["filler"].stop

    @property
    def num_answers(self) -> int:
        return self.shape.value.base

    @property
    def kinds(self) -> dict[str, range]:
        key = len(MARKS)
        value = key + self.shape.key.base
        filler = value + self.shape.value.base
        return {
            **{mark: range(i, i + 1) for i, mark in enumerate(MARKS)},
            "key": range(key, value),
            "value": range(value, filler),
            "filler": range(filler, filler + self.filler_vocab),
        }

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("by_distance", "exact_answers")

    def describe(self, token: int) -> str:
        if token < len(MARKS):
            return _SIGNS[token]
        kind, ids = next((kind, ids) for kind, ids in self.kinds.items() if token in ids)
        return f"{kind[0]}{token - ids.start}"

    def check_length(self, length: int) -> None:
        shape = self.shape
        if length < shape.least:
            raise ValueError(
                f"needle: length {length} leaves no room for a haystack with {shape.needles} needles of "
                f"{shape.needle} tokens and {shape.answers} of answers; use length >= {shape.least} or fewer needles"
            )
        if length > 1 << 20:
            raise ValueError(f"needle: length {length} is too long; use {shape.least} … 2^20")
        keys = shape.keys + shape.distractors(length)
        self._check_different("keys", keys, shape.key, f"length {length} is too long: ")

    def sample(self, rows: Rows, length: int) -> Batch:
        """Rows drawn by RULER's law, but for what the class says.

        Keys and values are uniform. In a repeated block needles stand before different blocks, in a haystack of
        needles before different ones of these, all choices equally likely, and so never at the end; the last
        block may be cut, and what a haystack of needles leaves over is filler in front. In an essay of F tokens
        they stand behind F · depth / 100 of them, rounded down, at different depths of 40, 0 … 100 in even steps
        rounded to whole percents. Which needle stands where is uniform, and so is the ordered choice of queried
        keys.
        """
        from statelab.tasks.needle_rows import draw, lay_out

        self.check_length(length)
        needles = draw(rows, self.shape, length, self.kinds, different=not self.ruler_collisions)
        return lay_out(self.shape, needles, everywhere=self.loss_on == "all")


_COUNTS = ("key_tokens", "value_tokens", "keys", "values", "queries")
