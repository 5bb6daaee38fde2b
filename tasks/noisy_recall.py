"""Noisy in-context recall: which value followed this key, among pairs of noise?

MAD's task (Poli et al., "Mechanistic design and scaling of hybrid architectures", 2024, and its `mad-lab`),
of the same law: `NoisyRecall.sample` has the draws, `NoisyRecall.lay_out` what is made of them.

Legend: R lanes, B rows, P pairs, S = P − 1 slots before the last pair, K keys, V values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import LossOn, Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_ROW = 0


@dataclass(frozen=True, kw_only=True)
class NoisyRecall(Task):
    """Pairs of a key and its value among pairs of noise; the value of a key seen before is asked for.

    A length counts, as MAD's `seq_len` does, the row with its last answer: P = length / 2 pairs. With
    `multi_query` every repeat of a key is scored and `inputs` has length − 1 tokens; without, only the last
    pair is, a copy token stands before it, and `inputs` has `length` tokens. Keys are the lower half of the
    tokens that are not noise (or copy), values the rest; noise comes after them and the copy token is the
    last.

        NoisyRecall(vocab=12, noise_vocab=4, noise=0.4) at 16
            in    k2 v3 n3 n3 k2 v3 k0 v2 k0 v2 k3 v0 n2 n2 k3
            out    ·  ·  ·  · v3  ·  ·  · v2  ·  ·  ·  ·  · v0
            ago    ·  ·  ·  ·  4  ·  ·  ·  2  ·  ·  ·  ·  ·  4

        NoisyRecall(vocab=13, noise_vocab=4, noise=0.4, multi_query=False, loss_on='scored') at 16
            in    k2 v3 n3 n3 k2 v3 k0 v2 k0 v2 k3 v0 n2 n2 => k3
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · v0
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  5
    """

    vocab: Annotated[int, "number of tokens: keys, values, noise and, without multi_query, copy"] = 80
    noise_vocab: Annotated[int, "how many of the tokens are noise"] = 16
    noise: Annotated[float, "chance that a slot holds noise, in [0, 1]"] = 0.8
    multi_query: Annotated[bool, "score every repeat of a key, rather than the last pair alone"] = True
    loss_on: Annotated[LossOn, "train on every next token (as MAD does) or on what is scored"] = "all"

    def __post_init__(self) -> None:
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noisy_recall: noise is {self.noise}; it is a chance, in [0, 1]")
        if self.noise_vocab < (self.noise > 0):
            raise ValueError(
                f"noisy_recall: noise_vocab is {self.noise_vocab}; use 1 or more (0 with noise = 0)"
            )
        least = self.noise_vocab + 3 + (not self.multi_query)
        if self.vocab < least:
            copy = "" if self.multi_query else " and the copy token"
            raise ValueError(
                f"noisy_recall: vocab {self.vocab} leaves no key and two values beside {self.noise_vocab} "
                f"tokens of noise{copy}; use vocab >= {least} or a smaller noise_vocab"
            )
        if self.loss_on not in ("all", "scored"):
            raise ValueError(f"noisy_recall: loss_on is {self.loss_on!r}; use 'all' or 'scored'")

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def num_answers(self) -> int:
        return len(self.kinds["value"])

    @property
    def kinds(self) -> dict[str, range]:
        noise = self.vocab - self.noise_vocab - (not self.multi_query)
        kinds = {"key": range(noise // 2), "value": range(noise // 2, noise)}
        if self.noise_vocab:
            kinds["noise"] = range(noise, noise + self.noise_vocab)
        if not self.multi_query:
            kinds["copy"] = range(self.vocab - 1, self.vocab)
        return kinds

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("by_distance",)

    def describe(self, token: int) -> str:
        kind, ids = next((kind, ids) for kind, ids in self.kinds.items() if token in ids)
        return "=>" if kind == "copy" else f"{kind[0]}{token - ids.start}"

    def check_length(self, length: int) -> None:
        if length < 4 or length % 2:
            raise ValueError(
                f"noisy_recall: length {length} does not hold two or more pairs of tokens; use an even "
                f"length >= 4"
            )

    def sample(self, rows: Rows, length: int) -> Batch:
        """Rows drawn by MAD's law.

        Each slot before the last pair is noise with chance `noise`, but for one of all P slots, drawn
        uniformly, that is not. Where that is the last slot, which never is, nothing is protected, and if all
        the rest came out as noise, MAD has no key to ask for and crashes; here one of those slots, drawn
        uniformly, then shows a pair. That concerns a share noise^(P − 1) / P of the rows.

        A shown key is uniform; a value belongs to each key, drawn uniformly once a row, so two keys may share
        one. The two noise tokens of a slot are uniform and independent; both are made of one random word, so
        no pair's probability is off by more than a factor 1 ± noise_vocab² / 2^32. The last key is uniform
        among the different ones shown.
        """
        import torch

        from statelab.tasks.rows import below, chance

        self.check_length(length)
        P, K, V = length // 2, len(self.kinds["key"]), len(self.kinds["value"])
        words = rows.words(_ROW, 3 + K + P + P - 1)
        protected, spare, asked, table, chances, contents = words.split((1, 1, 1, K, P, P - 1), -1)
        noisy_RBP = chance(chances, self.noise).long()
        noisy_RBP.scatter_(-1, below(protected, P), 0)
        bare = noisy_RBP[..., :-1].sum(-1, keepdim=True) == P - 1
        noisy_RBP.scatter_(-1, torch.where(bare, below(spare, P - 1), P - 1), 0)
        noisy_RBS = noisy_RBP[..., :-1]
        # What a multiply-and-shift leaves below the point is uniform too: it makes the second token.
        scaled = (noisy_RBS * (self.noise_vocab - K)).add_(K).mul_(contents)
        lead = (scaled >> 32).add_(noisy_RBS, alpha=K + V)
        follow = below(scaled.bitwise_and_(0xFFFFFFFF), self.noise_vocab).add_(K + V)
        return self.lay_out(lead, follow, K + below(table, V), _one_seen(lead, K, asked))

    def lay_out(self, lead: Tensor, follow: Tensor, table: Tensor, last: Tensor) -> Batch:
        """The rows that these tokens make, all int64.

        `lead` `[R, B, S]` opens the slots: a key, or noise and then `follow` `[R, B, S]`, which elsewhere is
        not looked at. `table` `[R, B, K]` is each key's value; `last` `[R, B, 1]` is the key of the last
        pair.
        """
        import torch

        S, K = lead.shape[-1], table.shape[-1]
        # Noise counts as one more key, K, which no pair has.
        key_RBP = torch.cat([lead, last], -1).clamp_(max=K)
        value_RBP = torch.cat([table, last], -1).gather(-1, key_RBP)
        row = lead.new_full((*lead.shape[:2], 2 * S + (2 if self.multi_query else 3)), self.vocab - 1)
        row[..., 0 : 2 * S : 2] = lead
        row[..., 1 : 2 * S : 2] = torch.where(lead < K, value_RBP[..., :-1], follow)
        row[..., -2:-1] = last
        row[..., -1:] = value_RBP[..., -1:]

        ago_RBP = _since_same(key_RBP, K).mul_(2)
        if not self.multi_query:
            ago_RBP, value_RBP = ago_RBP[..., -1:] + 1, value_RBP[..., -1:]
        queries = slice(0, None, 2) if self.multi_query else slice(-1, None)
        unasked = ago_RBP == 0
        targets, distance = row.new_full((2, *row.shape[:2], row.shape[-1] - 1), IGNORE)
        targets[..., queries] = value_RBP.masked_fill(unasked, IGNORE)
        distance[..., queries] = ago_RBP.masked_fill_(unasked, IGNORE)
        return Batch(
            inputs=row[..., :-1].contiguous(),
            targets=targets,
            loss_targets=row[..., 1:].contiguous() if self.loss_on == "all" else targets,
            length=torch.full_like(row[..., 0], row.shape[-1] - 1),
            distance=distance,
        )


def _one_seen(lead_RBS: Tensor, keys: int, word_RB1: Tensor) -> Tensor:
    """One of the different keys among these tokens, uniformly by a random word, `[R, B, 1]`."""
    from statelab.tasks.rows import below

    # A place behind the keys takes the noise.
    seen_RBK = lead_RBS.new_zeros((*lead_RBS.shape[:2], keys + 1))
    seen_RBK.scatter_(-1, lead_RBS.clamp(max=keys), 1)
    upto_RBK = seen_RBK[..., :-1].cumsum(-1)
    return (upto_RBK <= below(word_RB1, upto_RBK[..., -1:])).sum(-1, keepdim=True)


def _since_same(key_RBP: Tensor, none: int) -> Tensor:
    """How many slots ago the same key was last there, `[R, B, P]`; 0 if never, or if the key is `none`."""
    import torch

    key, slot = key_RBP.sort(dim=-1, stable=True)
    gap = slot.diff(dim=-1).mul_((key[..., 1:] == key[..., :-1]) & (key[..., 1:] != none))
    return torch.zeros_like(key_RBP).scatter_(-1, slot[..., 1:], gap)
