"""CUDA graphs whose recording may fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """What the block launches goes into `graph`, as with torch.cuda.graph.

    Where that fails, and its exception goes on, torch can draw random numbers on the device again.
    """
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except BaseException:
        # A recording that breaks off leaves torch's generator in it; one that ends takes it out again.
        with suppress(Exception):
            torch.cuda.synchronize()
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(1, device="cuda")
        raise
