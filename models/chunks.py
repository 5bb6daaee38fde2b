"""The optimiser steps between two evaluations, as what Lightning takes for its batches."""

from __future__ import annotations

from collections.abc import Iterator

Chunk = tuple[int, int]
"""The optimiser steps [start, stop) that one Lightning step makes."""


class Chunks:
    """Chunks [start, stop) that end at every multiple of `every` and at `steps`."""

    def __init__(self, start: int, steps: int, every: int) -> None:
        self._end = steps
        ends = [*range(every * (start // every + 1), steps, every), steps]
        self._chunks = [(a, b) for a, b in zip([start, *ends[:-1]], ends, strict=True) if a < b]

    def after_an_empty_one(self) -> Chunks:
        """The same chunks behind one that has no steps."""
        first = self._chunks[0][0] if self._chunks else self._end
        self._chunks.insert(0, (first, first))
        return self

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)
