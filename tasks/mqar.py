"""Multi-query associative recall (MQAR): pairs of a key and a value, then each key again, among filler.

Zoology's task (Arora, Eyuboglu et al., "Zoology: Measuring and improving recall in efficient language models",
2024, and its `multiquery_ar` and `forgetting_mqar`).

Legend: R lanes, B rows, T length, n pairs, u updates, F = T − 2n − 2u tokens behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_ROW, _WHICH = range(2)


@dataclass(frozen=True, kw_only=True)
class MQAR(Task):
    """Pairs of a key and its value, then each key once more among filler, where its value is asked for.

    The answer is the target at the key's own position and is not shown behind it, so that nothing but the
    answers is ever trained on. A length counts the input tokens. `MQAR.draw` has the law.

    `pairs` is a number or, for a published mixture, steps of a length and a number: a row has the number of
    the last step that is not above its length, and where several steps share that length, one of theirs with
    equal chances. With `updates`, so many of the keys are shown again behind the pairs, each with another
    value, and the latest value is the answer (zoology's `forgetting_mqar`).

    Three faults of zoology are mended. Its filler does not depend on its seed. Its random filler may be a key
    of the row, which then stands there unasked, 2.5 times a row at vocab 8192, length 512 and 64 pairs; here
    it is none of them. Its updates are compared with the value of a wrong key and may bring a key's own value
    again; here the value changes. `peer_compat` brings the second and third back: then, and with
    filler="zero" and no updates anyway, rows have zoology's law.

        MQAR(vocab=20, pairs=2, filler='zero') at 16
            in    k8 v9 k6 v4  _  _ k8  _ k6  _  _  _  _  _  _  _
            out    ·  ·  ·  ·  ·  · v9  · v4  ·  ·  ·  ·  ·  ·  ·
            ago    ·  ·  ·  ·  ·  ·  6  ·  6  ·  ·  ·  ·  ·  ·  ·

        MQAR(vocab=20, pairs=3, updates=1) at 18
            in    k8 v9 k6 v4 k0 v1 k8 v7 k8 v6 k6 v9 k1 k2 k2 v5 k0 v5
            out    ·  ·  ·  ·  ·  ·  ·  · v7  · v4  ·  ·  ·  ·  · v1  ·
            ago    ·  ·  ·  ·  ·  ·  ·  ·  2  ·  8  ·  ·  ·  ·  · 12  ·
    """

    vocab: Annotated[int, "number of tokens: 0, then keys, then values from half of it on"] = 8192
    pairs: Annotated[
        int | tuple[tuple[int, int], ...], "keys of a row, or steps: from this length on, so many keys"
    ] = 4
    power: Annotated[float, "place j for a query weighs (j + 1)^(power − 1): all the same at 1"] = 0.01
    filler: Annotated[Literal["random", "zero"], "what stands between the queries"] = "random"
    updates: Annotated[int, "how many keys are shown again with another value"] = 0
    peer_compat: Annotated[bool, "filler may be a key, an update may change nothing, as in zoology"] = False

    def __post_init__(self) -> None:
        if self.filler not in ("random", "zero"):
            raise ValueError(f"mqar: filler is {self.filler!r}; use 'random' or 'zero'")
        if not 0 <= self.power <= 2:
            raise ValueError(f"mqar: power is {self.power}; it must lie in [0, 2]")
        if not 4 <= self.vocab <= 1 << 21:
            raise ValueError(f"mqar: vocab is {self.vocab}; use 4 … 2^21: 0, a key and two values, or more")
        if self.pairs == ():
            raise ValueError("mqar: pairs is empty; give a number, or steps of a length and a number")
        for length, pairs in self._steps:
            self._check_step(length, pairs)

    def _check_step(self, length: int, pairs: int) -> None:
        keys = self.vocab // 2 - 1
        if not 1 <= pairs <= keys:
            raise ValueError(
                f"mqar: pairs is {pairs} and vocab {self.vocab} has {keys} keys; use 1 … {keys}, or vocab >= "
                f"{2 * pairs + 2}"
            )
        if not 0 <= self.updates <= pairs:
            raise ValueError(f"mqar: updates is {self.updates}; use 0 … {pairs}, the keys of a row")
        if length < self._least(pairs):
            raise ValueError(
                f"mqar: pairs has {pairs} keys from length {length} on, which do not fit; use length >= "
                f"{self._least(pairs)} or fewer keys"
            )

    @property
    def _steps(self) -> tuple[tuple[int, int], ...]:
        return ((self._least(self.pairs), self.pairs),) if isinstance(self.pairs, int) else self.pairs

    def _least(self, pairs: int) -> int:
        """The smallest length: two tokens for each pair, update and query."""
        return 4 * pairs + 2 * self.updates

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def num_answers(self) -> int:
        return len(self.kinds["value"])

    @property
    def kinds(self) -> dict[str, range]:
        half = self.vocab // 2
        return {"zero": range(1), "key": range(1, half), "value": range(half, self.vocab)}

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("by_distance",)

    def describe(self, token: int) -> str:
        kind, ids = next((kind, ids) for kind, ids in self.kinds.items() if token in ids)
        return "_" if kind == "zero" else f"{kind[0]}{token - ids.start}"

    def check_length(self, length: int) -> None:
        least, pairs = min(self._steps)
        if length < least:
            raise ValueError(
                f"mqar: length {length} is too short for {pairs} keys and {self.updates} updates; use "
                f"length >= {least} or fewer"
            )
        if length % 2:
            raise ValueError(
                f"mqar: length {length} is odd, and all stand at even places; use an even length >= {least}"
            )

    def _pairs_at(self, length: int) -> list[int]:
        start = max(start for start, _ in self._steps if start <= length)
        return [pairs for at, pairs in self._steps if at == start]

    def sample(self, rows: Rows, length: int) -> Batch:
        import torch

        self.check_length(length)
        choices = self._pairs_at(length)
        parts = self.draw(rows, length, choices[0])
        if len(choices) > 1:
            which_RB1 = rows.integers(_WHICH, 1, len(choices))
            for i, pairs in enumerate(choices[1:], 1):
                others = self.draw(rows, length, pairs)
                parts = [torch.where(which_RB1 == i, *both) for both in zip(others, parts, strict=True)]
        inputs, targets, distance = parts
        length_RB = torch.full_like(inputs[..., 0], length)
        return Batch(
            inputs=inputs, targets=targets, loss_targets=targets, length=length_RB, distance=distance
        )

    def draw(self, rows: Rows, length: int, pairs: int) -> list[Tensor]:
        """Inputs, targets and distances of rows with so many pairs, drawn by zoology's law but for its faults.

        Keys are distinct and uniform, values too, and stand in the order drawn. Updates are of distinct keys,
        uniform, in the order drawn, and their values uniform among the others. The slots are the even places
        behind; slot j, counted from 0, weighs (j + 1)^(power − 1), they are drawn one after another without
        putting back, and the i-th drawn is the query of the i-th key. Filler is uniform.
        """
        from statelab.tasks.distinct import distinct, words_for
        from statelab.tasks.rows import below
        from statelab.tasks.weighted import successive_places

        n, u, key, value = pairs, self.updates, self.kinds["key"], self.kinds["value"]
        tail = length - 2 * (n + u)
        filler = 0 if self.filler == "zero" else tail
        sizes = (
            words_for(n, len(key)),
            words_for(n, len(value)),
            words_for(u, n) if u else 0,
            u,
            tail // 2,
            filler,
        )
        for_keys, for_values, for_updated, for_renewed, for_slots, for_filler = rows.words(
            _ROW, sum(sizes)
        ).split(sizes, -1)
        keys = distinct(for_keys, n, len(key)).add_(key.start)
        values = distinct(for_values, n, len(value)).add_(value.start)
        updated = distinct(for_updated, u, n) if u else keys[..., :0]
        old = values[..., :u] if self.peer_compat else values.gather(-1, updated)
        renewed = below(for_renewed, len(value) - 1).add_(value.start)
        renewed += renewed >= old
        slots = successive_places(for_slots, n, self.power - 1)
        if self.filler == "zero":
            filler_RBF = keys.new_zeros((*keys.shape[:-1], tail))
        elif self.peer_compat:
            filler_RBF = below(for_filler, self.vocab)
        else:
            filler_RBF = _others(for_filler, keys, self.vocab)
        return lay_out(keys, values, updated, renewed, slots, filler_RBF)


def lay_out(
    keys: Tensor, values: Tensor, updated: Tensor, renewed: Tensor, slots: Tensor, filler: Tensor
) -> list[Tensor]:
    """The inputs, targets and distances, int64 `[R, B, T]`, that these draws make.

    `keys` and `values` are `[R, B, n]`; `updated` `[R, B, u]` are places in them and `renewed` `[R, B, u]` the
    values these get; `slots` `[R, B, n]` says at which even place behind each key is asked for; `filler`
    `[R, B, F]` is what stands where none is.
    """
    import torch

    n, u = keys.shape[-1], updated.shape[-1]
    shown = torch.stack(
        [torch.cat([keys, keys.gather(-1, updated)], -1), torch.cat([values, renewed], -1)], -1
    )
    place = 2 * torch.arange(n + u, device=keys.device).expand(*keys.shape[:-1], -1)
    query = 2 * (n + u + slots)
    inputs = torch.cat([shown.flatten(-2), filler], -1).scatter_(-1, query, keys)
    targets, distance = inputs.new_full((2, *inputs.shape), IGNORE)
    targets.scatter_(-1, query, values.scatter(-1, updated, renewed))
    distance.scatter_(-1, query, query - place[..., :n].scatter(-1, updated, place[..., n:]))
    return [inputs, targets, distance]


def _others(words_RBF: Tensor, keys_RBn: Tensor, vocab: int) -> Tensor:
    """Tokens uniform among those that are no key of the row, `[R, B, F]`.

    The n last tokens are values, as the keys lie below half. A token is drawn from all before them, and where
    it is a key, one of those n, by what the multiply-and-shift leaves below the point.
    """
    import torch

    n = keys_RBn.shape[-1]
    scaled = words_RBF * (vocab - n)
    token = scaled >> 32
    spare = scaled.bitwise_and_(0xFFFFFFFF).mul_(n).bitwise_right_shift_(32).add_(vocab - n)
    # One bit for each token; of distinct keys a sum of bits is their union.
    held = keys_RBn.new_zeros((*keys_RBn.shape[:-1], (vocab >> 6) + 1))
    held.scatter_add_(-1, keys_RBn >> 6, 1 << (keys_RBn & 63))
    is_key = held.gather(-1, token >> 6).bitwise_right_shift_(token & 63).bitwise_and_(1)
    return torch.where(is_key == 1, spare, token)
