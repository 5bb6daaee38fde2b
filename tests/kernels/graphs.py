"""Steps replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def eager_and_replayed(
    make: Callable[[], Sequence[Tensor]], step: Callable[[Sequence[Tensor]], Sequence[Tensor]]
) -> tuple[list[Tensor], list[Tensor]]:
    """What a step gives at once, the second time, and what it gives as a captured graph.

    Leaves are made where they are captured: a gradient goes back on the stream on which its leaf was made.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        leaves = make()
        step(leaves)
        eager = [tensor.clone() for tensor in step(leaves)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        replayed = list(step(leaves))
    for tensor in replayed:
        tensor.detach().fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    return eager, replayed
