"""Which rows are asked for, and the random numbers that belong to them.

A number is a pure function of (seed, split, row, draw, position): Philox with key (seed, split) and counter
(row low, row high, block of four words, draw). So a row is the same in any batch, any order of lanes and on
any device, and two splits of a seed never meet. A *draw* is a small constant by which a task names one of its
sources; two uses of one draw give the same words.

Legend: R lanes, B rows, n numbers of a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from statelab.tasks.distinct import candidates, first_distinct
from statelab.tasks.philox import philox

Split = Literal["train", "validation", "test"]

_SPLITS: tuple[Split, ...] = get_args(Split)
_WORD = 32
_KEY_BITS = 63


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows `index` of `split`, for each lane's seed.

    `seeds` is int64 `[R]` in [0, 2^32) and may repeat, `index` int64 `[B]`, not negative, both on one device.
    Raises ValueError otherwise; values are only looked at on a CPU, since elsewhere that would wait for the
    device.
    """

    seeds: Tensor
    split: Split
    index: Tensor

    def __post_init__(self) -> None:
        _check_ints("seeds", self.seeds, 1 << _WORD)
        _check_ints("index", self.index, None)
        if self.seeds.device != self.index.device:
            raise ValueError(
                f"rows: seeds are on {self.seeds.device}, index on {self.index.device}; use one device"
            )
        if self.split not in _SPLITS:
            raise ValueError(f"rows: unknown split {self.split!r}; known: {', '.join(_SPLITS)}")

    @classmethod
    def span(
        cls,
        seeds: Sequence[int] | Tensor,
        split: Split,
        start: int,
        count: int,
        device: torch.device | str | None = None,
    ) -> Rows:
        """Rows start … start + count − 1, on `device` (default: the device of `seeds`, or the CPU)."""
        if start < 0 or count < 1:
            raise ValueError(f"rows: start {start} and count {count} given; use start >= 0 and count >= 1")
        found = seeds if isinstance(seeds, Tensor) else torch.tensor(seeds, dtype=torch.int64, device="cpu")
        _check_ints("seeds", found, 1 << _WORD)
        found = found.to(device) if device is not None else found
        return cls(found, split, torch.arange(start, start + count, device=found.device))

    @property
    def device(self) -> torch.device:
        """Where the rows' tensors live."""
        return self.index.device

    @property
    def lanes(self) -> int:
        """R, the number of seeds."""
        return self.seeds.shape[0]

    @property
    def count(self) -> int:
        """B, the number of rows of each lane."""
        return self.index.shape[0]

    def words(self, draw: int, n: int) -> Tensor:
        """Uniform integers in [0, 2^32), int64 `[R, B, n]`; word j does not depend on n."""
        assert 0 <= draw < 1 << _WORD
        blocks = torch.arange(-(-n // 4), device=self.device)
        index_B1 = self.index[:, None]
        counter = (
            index_B1 & 0xFFFFFFFF,
            index_B1 >> _WORD,
            blocks,
            torch.full((), draw, dtype=torch.int64, device=self.device),
        )
        split = torch.full_like(self.seeds, _SPLITS.index(self.split))
        return philox(counter, torch.stack([self.seeds, split], -1)).flatten(-2)[..., :n]

    def integers(self, draw: int, n: int, high: int | Tensor) -> Tensor:
        """Uniform integers in [0, high), int64 `[R, B, n]`; number j does not depend on n.

        `high` is at most 2^31, an int or an int64 tensor that broadcasts to `[R, B, n]`. Multiply and shift:
        no probability is off by more than a factor 1 ± high / 2^32.
        """
        if isinstance(high, int) and not 1 <= high <= 1 << 31:
            raise ValueError(f"integers: high is {high}; it must lie in 1 … 2^31")
        return below(self.words(draw, n), high)

    def bits(self, draw: int, n: int) -> Tensor:
        """Fair bits, int64 `[R, B, n]` of 0 and 1, 32 from each word; bit j does not depend on n."""
        words = self.words(draw, -(-n // _WORD))
        places = torch.arange(_WORD, device=self.device)
        return (words[..., None] >> places).bitwise_and_(1).flatten(-2)[..., :n]

    def flags(self, draw: int, n: int, probability: float) -> Tensor:
        """True with `probability`, bool `[R, B, n]`; flag j does not depend on n.

        The probability is rounded to a multiple of 2^-32 and compared as an integer, so that devices agree.
        """
        return chance(self.words(draw, n), probability)

    def permutation(self, draw: int, n: int) -> Tensor:
        """Uniform orders of 0 … n − 1, int64 `[R, B, n]`.

        Sorts random keys above whose low bits, which hold the position, 63 − log2(n) bits are random: two
        tie, and then keep their order, with probability at most n³ / 2^64, 6e-11 at n = 1024.
        """
        if not 1 <= n <= 1 << 20:
            raise ValueError(f"permutation: n is {n}; it must lie in 1 … 2^20")
        low_bits = (n - 1).bit_length()
        words = self.words(draw, 2 * n).unflatten(-1, (n, 2))
        keys = (words[..., 0] << (_KEY_BITS - _WORD)) | (words[..., 1] >> 1)
        keys = (keys >> low_bits << low_bits) | torch.arange(n, device=self.device)
        ordered: Tensor = keys.sort(dim=-1).values
        return ordered & ((1 << low_bits) - 1)

    def choice(self, draw: int, k: int, n: int) -> Tensor:
        """k distinct numbers of 0 … n − 1, every ordered choice equally likely, int64 `[R, B, k]`.

        The first k different ones among m uniform integers, m (a little above k where k is well below n)
        chosen so that fewer than k differ with probability below 2^-64; where that needs m >= n, the head of
        a permutation. Memory per row grows with min(m, n).
        """
        if not 1 <= k <= n <= 1 << 20:
            raise ValueError(f"choice: {k} of {n} asked; use 1 <= k <= n <= 2^20")
        m = candidates(k, n)
        return self.permutation(draw, n)[..., :k] if m >= n else first_distinct(self.integers(draw, m, n), k)


def below(words: Tensor, high: int | Tensor) -> Tensor:
    """Uniform integers in [0, high) made of uniform words, as `Rows.integers` makes them."""
    return (words * high).bitwise_right_shift_(_WORD)


def chance(words: Tensor, probability: float) -> Tensor:
    """True with `probability`, made of uniform words as `Rows.flags` does; ValueError outside [0, 1]."""
    if not 0 <= probability <= 1:
        raise ValueError(f"flags: probability is {probability}; it must lie in [0, 1]")
    return words < round(probability * (1 << _WORD))


def _check_ints(name: str, found: Tensor, high: int | None) -> None:
    if found.dtype != torch.int64 or found.ndim != 1 or not found.numel():
        raise ValueError(
            f"rows: {name} must be a one-dimensional int64 tensor with at least one entry, "
            f"got {found.dtype} of shape {list(found.shape)}"
        )
    if found.device.type != "cpu":
        return
    low, top = int(found.min()), int(found.max())
    if low < 0 or (high is not None and top >= high):
        bound = "0 or more" if high is None else "in 0 … 2^32 - 1"
        raise ValueError(f"rows: {name} must be {bound}, got {low if low < 0 else top}")
