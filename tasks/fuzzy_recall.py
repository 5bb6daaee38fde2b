"""Fuzzy in-context recall: which value followed this key, where both are words of several tokens?

MAD's task (Poli et al., "Mechanistic design and scaling of hybrid architectures", 2024, and its `mad-lab`), of
the same law but for one fault: `FuzzyRecall.sample` says what is drawn. (MAD's recall of single tokens is
noisy_recall, without noise if its noise = 0.)

Legend: R lanes, B rows, K and V tokens of the longest key and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import LossOn, Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.fuzzy_layout import Pairs, Row
    from statelab.tasks.rows import Rows

_ROW, _NOISE = range(2)


@dataclass(frozen=True, kw_only=True)
class FuzzyRecall(Task):
    """Pairs of a key and its value, words of distinct tokens; the value of a key seen before is asked for.

    A length counts the input tokens; rows are padded in front. With `multi_query` the value of every repeated
    key is scored, all its tokens; without, only that of the key at the end, behind a copy token. Outside the
    training split keys have their full size. Tokens are those of keys, of values, noise, pad and, without
    `multi_query`, copy.

    In 2.5 % of MAD's rows (at vocab 16 and length 128, outside training) the key at the end was never shown,
    so that nothing can be known of its value; here it always was. With `peer_compat` such rows stay; the
    distance is then that from the first pair.

        FuzzyRecall(vocab=8, key_tokens=2, value_tokens=2) at 24
            in     _  _  _  _  _ k0 k2 v0 k2 v2 v0 k1 k0 v1 v2 k2 k1 v2 k1 k0 v1 v2 k2 k1
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · v1 v2  ·  · v2
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  7  7  ·  ·  7

        FuzzyRecall(vocab=9, key_tokens=2, value_tokens=2, multi_query=False, loss_on='scored') at 20
            in     _  _  _  _ k0 k2 v0 k2 v2 v0 k2 k1 v2 k1 k0 v1 v2 => k2 k1
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · v2
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  8
    """

    vocab: Annotated[
        int, "number of tokens: keys' and values', noise, pad and, without multi_query, copy"
    ] = 16
    key_tokens: Annotated[int, "tokens of the longest key"] = 3
    value_tokens: Annotated[int, "tokens of the longest value"] = 3
    noise_vocab: Annotated[int, "how many of the tokens are noise"] = 0
    noise: Annotated[float, "chance that noise stands instead of a pair, in [0, 1)"] = 0.0
    multi_query: Annotated[bool, "score every repeat of a key, rather than the last alone"] = True
    loss_on: Annotated[LossOn, "train on every next token (as MAD does) or on what is scored"] = "all"
    peer_compat: Annotated[bool, "let the last key be one that was never shown, as in MAD"] = False

    def __post_init__(self) -> None:
        if self.loss_on not in ("all", "scored"):
            raise ValueError(f"fuzzy_recall: loss_on is {self.loss_on!r}; use 'all' or 'scored'")
        if not 0 <= self.noise < 1:
            raise ValueError(f"fuzzy_recall: noise is {self.noise}; it is a chance, in [0, 1)")
        if self.noise_vocab < (self.noise > 0):
            raise ValueError(
                f"fuzzy_recall: noise_vocab is {self.noise_vocab}; use 1 or more (0 with noise = 0)"
            )
        if min(self.key_tokens, self.value_tokens) < 1:
            raise ValueError(
                f"fuzzy_recall: key_tokens {self.key_tokens} and value_tokens {self.value_tokens} given; use 1 "
                f"or more"
            )
        # The tokens that are left are halved, the odd one to the values.
        needed = max(2 * self.key_tokens, 2 * self.value_tokens - 1, 3)
        if self._content < needed:
            raise ValueError(
                f"fuzzy_recall: vocab {self.vocab} leaves {self._content} tokens for keys and values, which "
                f"cannot be of {self.key_tokens} and {self.value_tokens} distinct ones; use vocab >= "
                f"{needed + self.vocab - self._content} or shorter ones"
            )
        if self.vocab > 1 << 31:
            raise ValueError(f"fuzzy_recall: vocab is {self.vocab}; use 2^31 or less")
        if (len(self.kinds["key"]) + 1) ** self.key_tokens > 1 << 62:
            raise ValueError(
                f"fuzzy_recall: there are more than 2^62 keys of {self.key_tokens} tokens; use a smaller vocab "
                f"or key_tokens"
            )

    @property
    def _content(self) -> int:
        return self.vocab - self.noise_vocab - (1 if self.multi_query else 2)

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def num_answers(self) -> int:
        return len(self.kinds["value"])

    @property
    def kinds(self) -> dict[str, range]:
        noise, pad = self._content, self._content + self.noise_vocab
        kinds = {"key": range(noise // 2), "value": range(noise // 2, noise)}
        if self.noise_vocab:
            kinds["noise"] = range(noise, pad)
        kinds["pad"] = range(pad, pad + 1)
        if not self.multi_query:
            kinds["copy"] = range(self.vocab - 1, self.vocab)
        return kinds

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("by_distance", "exact_answers")

    def describe(self, token: int) -> str:
        kind, ids = next((kind, ids) for kind, ids in self.kinds.items() if token in ids)
        return {"pad": "_", "copy": "=>"}.get(kind, f"{kind[0]}{token - ids.start}")

    def check_length(self, length: int) -> None:
        least = 2 * (self.key_tokens + self.value_tokens) + 1
        if length < least:
            raise ValueError(
                f"fuzzy_recall: length {length} does not hold two pairs of {self.key_tokens} and "
                f"{self.value_tokens} tokens; use length >= {least} or shorter ones"
            )

    def sample(self, rows: Rows, length: int) -> Batch:
        """Rows drawn by MAD's law.

        The probe, whose value is asked for at the end, and all other pairs are drawn alike: the sizes of key
        and value are uniform from 1 to the longest (of keys the longest alone outside the training split), and
        their tokens one of all ordered choices of distinct ones. A key that comes again has its first value.
        In place of a pair, with chance `noise`, so many tokens of noise stand.

        Pairs follow each other until fewer tokens are left than the longest pair and the probe have together.
        The probe stands among them at the first boundary at or behind a place, uniform in 0 … length − 2 · its
        size − 1, unless its key came before by itself. If no such boundary comes, MAD leaves the probe out;
        here it then stands at the last one.
        """
        import torch

        from statelab.tasks.fuzzy_layout import place, render
        from statelab.tasks.rows import below

        self.check_length(length)
        longest = self.key_tokens + self.value_tokens
        shortest = 1 + (1 if rows.split == "train" else self.key_tokens)
        # The probe, and as many others as there are where all are short.
        count = 1 + -(-(length - shortest - longest) // shortest)
        words = rows.words(_ROW, count * (longest + 3) + 1)
        pairs = self._pairs(words[..., 1:].unflatten(-1, (count, -1)), train=rows.split == "train")
        place_RB1 = below(words[..., :1], length - 2 * pairs.size[..., :1])
        limit_RB1 = length - longest - pairs.size[..., :1]
        line = place(pairs, place_RB1, limit_RB1, always=not self.peer_compat, only_last=not self.multi_query)
        copy = None if self.multi_query else self.vocab - 1
        row = render(pairs, line, length + 1, self.kinds["pad"].start, copy)
        if self.noise:
            noise = rows.integers(_NOISE, length + 1, self.noise_vocab) + self.kinds["noise"].start
            row = row._replace(token=torch.where(row.noisy, noise, row.token))
        return self._batch(row)

    def _pairs(self, words_RBNW: Tensor, train: bool) -> Pairs:
        """Pairs of keys and values drawn by so many words each; the first is the probe and no noise."""
        import torch

        from statelab.tasks.fuzzy_layout import pairs_of
        from statelab.tasks.motifs import motifs
        from statelab.tasks.rows import below, chance

        K, V = self.key_tokens, self.value_tokens
        for_keys, for_values, for_key_size, for_value_size, for_noise = words_RBNW.split((K, V, 1, 1, 1), -1)
        keys = motifs(for_keys, len(self.kinds["key"]))
        values = motifs(for_values, len(self.kinds["value"])) + self.kinds["value"].start
        key_size = below(for_key_size[..., 0], K) + 1 if train else torch.full_like(keys[..., 0], K)
        value_size = below(for_value_size[..., 0], V) + 1
        noisy = chance(for_noise[..., 0], self.noise)
        noisy[..., 0] = False
        return pairs_of(keys, values, key_size, value_size, noisy, len(self.kinds["key"]))

    def _batch(self, row: Row) -> Batch:
        token, unscored = row.token, row.ago == 0
        targets = token.masked_fill(unscored, IGNORE)[..., 1:].contiguous()
        return Batch(
            inputs=token[..., :-1].contiguous(),
            targets=targets,
            loss_targets=token[..., 1:].contiguous() if self.loss_on == "all" else targets,
            length=row.length,
            distance=row.ago.masked_fill(unscored, IGNORE)[..., 1:].contiguous(),
            group=row.group.masked_fill(unscored, IGNORE)[..., 1:].contiguous(),
        )
