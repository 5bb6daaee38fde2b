"""A step as one CUDA graph: recorded once for each shape of a batch, then replayed with a single launch.

The graphs of a population share one pool of memory: they run one after another, so the activations of one lie where
those of another were. Legend: R lanes, B rows, T time.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from statelab.kernels.capture import recording
from statelab.models.step import StepFunction, Tensors

MAX_GRAPHS = 128
"""Shapes that are captured; a graph of some thousand kernels takes megabytes of its own beside the shared pool."""

AHEAD = 16
"""Steps that the host may be ahead of the device: enough that the device never waits, few enough that a signal, a
line of progress or a checkpoint comes soon."""


class Graphs:
    """The captured steps of a population, by the shape of a batch."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self._room: Tensor | None = None

    def __contains__(self, shape: torch.Size) -> bool:
        return shape in self._graphs

    @property
    def full(self) -> bool:
        """Whether no further shape is captured."""
        return len(self._graphs) >= MAX_GRAPHS

    def capture(self, step: StepFunction, shape: torch.Size) -> None:
        """Record `step` for batches of `shape`, without executing it: it must have run before, outside."""
        inputs_RBT, targets_RBT = self._buffers(shape)
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self._pool):
            losses_R = step(self._tensors, inputs_RBT, targets_RBT)
        self._graphs[shape] = graph, inputs_RBT, targets_RBT, losses_R

    def replay(
        self, inputs_SBT: Tensor, targets_SBT: Tensor, seed_of_lane_R: Tensor, shape: torch.Size
    ) -> Tensor:
        """Make a step on the rows of each lane's seed; its losses [R], valid until the next step."""
        graph, inputs_RBT, targets_RBT, losses_R = self._graphs[shape]
        torch.index_select(inputs_SBT, 0, seed_of_lane_R, out=inputs_RBT)
        torch.index_select(targets_SBT, 0, seed_of_lane_R, out=targets_RBT)
        graph.replay()
        return losses_R

    def _buffers(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Where graphs of `shape` read a batch: the same memory for all of them that are no larger."""
        device = self._tensors.flat_RP.device
        if self._room is None or self._room.shape[1] < shape.numel():
            self._room = torch.zeros(2, shape.numel(), dtype=torch.int64, device=device)
        inputs, targets = (part[: shape.numel()].view(shape) for part in self._room)
        return inputs, targets


class Pace:
    """Keeps the host at most AHEAD steps ahead of a CUDA device."""

    def __init__(self) -> None:
        self._events: deque[torch.cuda.Event] = deque()

    def step(self) -> None:
        """Note a step that has been launched; wait for the one AHEAD before it, while the others run."""
        event = self._events.popleft() if len(self._events) >= AHEAD else torch.cuda.Event(blocking=True)
        if event.query() is False:
            event.synchronize()
        event.record()
        self._events.append(event)


def wait_idly(device: torch.device) -> None:
    """Wait for what has been launched on a CUDA device as Pace does; reading a result would keep a core busy."""
    if device.type == "cuda":
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(device))
        event.synchronize()


@contextmanager
def refusing_to_wait() -> Iterator[None]:
    """Raise RuntimeError where code within waits for a CUDA device, which no captured step may."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: str | int) -> None:
    with warnings.catch_warnings():
        # torch says that the mode is a prototype, which does not see every wait: capturing sees the rest.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
