"""How an mLSTM writes and reads its memory, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statelab.kernels.orthogonal_read import Factor, StraightThrough, check_read

Read = Literal["plain", "orthogonal"]
Write = Literal["add", "delta"]
Programs = Literal["auto", "chunks", "sequences"]
"""What a program of the Triton kernels owns."""
WIDEST_SEQUENCES = 64
"""Largest K and V of a program that owns a sequence: beside C or its gradient are a chunk's products."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `mlstm`. Raises ValueError for values that `mlstm` does not know."""

    read: Read = "plain"
    iterations: int = 5
    factor: Factor = "cubic"
    straight_through: StraightThrough = "off"
    write: Write = "add"
    normaliser: bool = True
    programs: Programs = "auto"

    def __post_init__(self) -> None:
        if self.read not in ("plain", "orthogonal"):
            raise ValueError(f"mlstm: read must be 'plain' or 'orthogonal', got {self.read!r}")
        if self.write not in ("add", "delta"):
            raise ValueError(f"mlstm: write must be 'add' or 'delta', got {self.write!r}")
        if self.programs not in ("auto", "chunks", "sequences"):
            raise ValueError(
                f"mlstm: programs must be 'auto', 'chunks' or 'sequences', got {self.programs!r}"
            )
        check_read(self.factor, self.iterations, self.straight_through)
