"""Selective copying: say again, in order, the tokens that stood among blanks.

MAD's task (Poli et al., "Mechanistic design and scaling of hybrid architectures", 2024, and its `mad-lab`),
after Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", 2023, section 4.1.1.

Legend: R lanes, B rows, T length, n tokens to copy, F = T − n − 1 places before the copy token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from statelab.tasks.batch import IGNORE, Batch
from statelab.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from statelab.tasks.rows import Rows

_TOKENS, _PLACES = range(2)


@dataclass(frozen=True, kw_only=True)
class SelectiveCopying(Task):
    """Tokens among blanks, a copy token, and as many blanks as there were tokens, at which these are asked for.

    A length counts the input tokens. The tokens to copy are uniform and independent; nothing but the answers
    is ever trained on. By default the tokens' places are distinct and uniform among those before the copy
    token, as in Mamba's task. MAD puts each of its blanks before a token drawn uniformly, so that its last
    token always touches the copy token; `peer_compat` does the same. (MAD draws the places from a generator
    that its seed does not set; here they belong to the row.)

        SelectiveCopying(vocab=8, copies=4) at 16
            in    t2 t5  _  _  _  _  _  _  _ t4 t3 =>  _  _  _  _
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · t2 t5 t4 t3
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · 12 12  5  5

        SelectiveCopying(vocab=8, copies=4, peer_compat=True) at 16
            in     _  _ t2 t5  _  _ t4  _  _  _ t3 =>  _  _  _  _
            out    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · t2 t5 t4 t3
            ago    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  · 10 10  8  5
    """

    vocab: Annotated[int, "number of tokens: those to copy, blank and copy"] = 16
    copies: Annotated[int, "how many tokens are to be copied"] = 16
    peer_compat: Annotated[bool, "blanks fall before tokens, as in MAD, rather than anywhere"] = False

    def __post_init__(self) -> None:
        if not 4 <= self.vocab <= 1 << 31:
            raise ValueError(
                f"selective_copying: vocab is {self.vocab}; use 4 … 2^31: two tokens, blank and copy, or more"
            )
        if self.copies < 1:
            raise ValueError(f"selective_copying: copies is {self.copies}; use 1 or more")

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def num_answers(self) -> int:
        return self.vocab - 2

    @property
    def kinds(self) -> dict[str, range]:
        blank, copy = self.vocab - 2, self.vocab - 1
        return {"token": range(blank), "blank": range(blank, copy), "copy": range(copy, self.vocab)}

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("by_distance",)

    def describe(self, token: int) -> str:
        return {self.vocab - 2: "_", self.vocab - 1: "=>"}.get(token, f"t{token}")

    def check_length(self, length: int) -> None:
        least = 2 * self.copies + 2
        if length < least:
            raise ValueError(
                f"selective_copying: length {length} does not hold {self.copies} tokens, a blank, the copy token "
                f"and {self.copies} answers; use length >= {least} or fewer copies"
            )
        if length > 1 << 20:
            raise ValueError(f"selective_copying: length {length} is too long; use {least} … 2^20")

    def sample(self, rows: Rows, length: int) -> Batch:
        from statelab.tasks.distinct import choose

        self.check_length(length)
        n, front = self.copies, length - self.copies - 1
        tokens = rows.integers(_TOKENS, n, self.vocab - 2)
        if self.peer_compat:
            places = _places_behind(rows.integers(_PLACES, front - n, n), n)
        else:
            places = choose(rows, _PLACES, n, front).sort(-1).values
        return self.lay_out(tokens, places, length)

    def lay_out(self, tokens: Tensor, places: Tensor, length: int) -> Batch:
        """The rows with these tokens at these places, both int64 `[R, B, n]`, the places rising."""
        import torch

        n = self.copies
        inputs = tokens.new_full((*tokens.shape[:-1], length), self.vocab - 2)
        inputs.scatter_(-1, places, tokens)
        inputs[..., -n - 1] = self.vocab - 1
        targets, distance = inputs.new_full((2, *inputs.shape), IGNORE)
        targets[..., -n:] = tokens
        distance[..., -n:] = torch.arange(length - n, length, device=tokens.device) - places
        return Batch(
            inputs=inputs,
            targets=targets,
            loss_targets=targets,
            length=torch.full_like(inputs[..., 0], length),
            distance=distance,
        )


def _places_behind(before: Tensor, n: int) -> Tensor:
    """Where n tokens come to stand if each blank falls before token `before` `[R, B, blanks]`; `[R, B, n]`."""
    import torch

    blanks = before.new_zeros((*before.shape[:-1], n))
    blanks.scatter_add_(-1, before, torch.ones_like(before))
    return blanks.cumsum(-1) + torch.arange(n, device=before.device)
