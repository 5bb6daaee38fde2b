"""One step of a layer or model that carries its state, with all its tensors in place, so that it can be replayed.

Legend: B rows, T time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from statelab.models.arithmetic import arithmetic_of
from statelab.models.mixer import State
from statelab.models.settings import Arithmetic
from statelab.models.timing import Replay, captured

Read = Callable[[Tensor, State], tuple[Tensor, State]]
"""From what a step reads `[B, 1, …]` and the state before it to its outputs `[B, 1, …]` and the state behind it."""

TOLERANCE = {"float32": 1e-4, "tf32": 1e-2, "bf16": 0.1}
"""How far outputs read one by one may be from those of the whole sequence, by `off`."""


class Streamer:
    """`inputs` are what the next step reads, `outputs` what it wrote; `make.run()` makes a step.

    `state` is written by each step, unless it `grows` with the sequence: then every step follows the same past.
    `choose`, if given, makes the next inputs from the outputs. Captured where the device has graphs.
    """

    def __init__(
        self,
        read: Read,
        inputs: Tensor,
        state: State,
        arithmetic: str,
        choose: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._read, self._choose, self._arithmetic = read, choose, arithmetic
        self.inputs = inputs.clone()
        self.state = tree_map(torch.clone, state)
        with reading(arithmetic, inputs.device):
            outputs, after = read(self.inputs, self.state)
        self.outputs = torch.empty_like(outputs)
        self.grows = [leaf.shape for leaf in leaves(after)] != [leaf.shape for leaf in leaves(state)]
        self.make: Replay = captured(self._step, inputs.device)
        self.begin(inputs, state)

    def begin(self, inputs: Tensor, state: State) -> None:
        """Let the next step read `inputs` behind `state`."""
        self.inputs.copy_(inputs)
        for held, given in zip(leaves(self.state), leaves(state), strict=True):
            held.copy_(given)

    def read_all(self, inputs: Tensor, state: State) -> Tensor:
        """Outputs `[B, T, …]` of given inputs `[B, T, …]`, read one by one behind `state`; of a growing one, the
        first."""
        self.begin(inputs[:, :1], state)
        outputs = []
        for step in range(1 if self.grows else inputs.shape[1]):
            self.inputs.copy_(inputs[:, step : step + 1])
            self.make.run()
            outputs.append(self.outputs.clone())
        return torch.cat(outputs, dim=1)

    def _step(self) -> None:
        with reading(self._arithmetic, self.inputs.device):
            outputs, after = self._read(self.inputs, self.state)
            self.outputs.copy_(outputs)
            if not self.grows:
                for held, made in zip(leaves(self.state), leaves(after), strict=True):
                    held.copy_(made)
            if self._choose is not None:
                self.inputs.copy_(self._choose(outputs))


@contextmanager
def reading(arithmetic: str, device: torch.device) -> Iterator[None]:
    """A forward pass in an arithmetic, without gradients."""
    with torch.no_grad(), arithmetic_of(cast(Arithmetic, arithmetic), device):
        yield


def leaves(state: State) -> list[Tensor]:
    """The tensors of a state."""
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]


def off(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors, in units of the largest value of the other."""
    return float((one.double() - other.double()).abs().max() / other.double().abs().max())


def lighten(model: nn.Module, arithmetic: str) -> None:
    """Keep a model's linear weights in 16 bits, if that is how it computes: the numbers that a cast at every step
    would give."""
    for module in model.modules() if arithmetic == "bf16" else ():
        if isinstance(module, nn.Linear):
            module.to(torch.bfloat16)
