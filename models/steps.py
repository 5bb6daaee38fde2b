"""Makes a population's steps the fastest way that works: compiled and captured, captured, or eagerly.

All ways change the same tensors in place, so a step may be made in another way than the one before it. Legend: R
lanes, S seeds, B rows, T time.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from statelab.models.captured import Graphs, Pace, refusing_to_wait
from statelab.models.compiled import compile_step
from statelab.models.execution import Execution
from statelab.models.population import is_out_of_memory
from statelab.models.settings import TrainingSettings
from statelab.models.step import StepFunction, Tensors
from statelab.tasks.batch import Batch

LONGEST_REASON = 200


class Steps:
    """Steps of one population. A shape's first two are made outside a graph, so that all that is set up lazily is.

    The first is eager: it shows whether vmap can lift the model, and fills tables and caches. The second is compiled,
    where that is asked for, or else checked for waiting on the device. The third is captured and replayed. What
    cannot be compiled or captured is said once, as a warning, and goes on without.
    """

    def __init__(
        self,
        step: StepFunction,
        tensors: Tensors,
        training: TrainingSettings,
        execution: Execution,
        done: int = 0,
    ) -> None:
        self._step, self._tensors, self._arithmetic = step, tensors, training.arithmetic
        on_card = tensors.flat_RP.device.type == "cuda"
        self._compiles = execution.compiles(training, done, tensors.flat_RP.device.type)
        self._captures = on_card and execution.capture != "off"
        self._graphs = Graphs(tensors) if self._captures else None
        self._pace = Pace() if on_card else None
        self._checked = False
        self._compiled: dict[torch.Size, StepFunction] = {}
        self._seen: dict[torch.Size, int] = {}

    @property
    def way(self) -> str:
        """How steps are made by now, for records: eager, compiled, captured, or compiled and captured."""
        ways = ["compiled"] * self._compiles + ["captured"] * self._captures
        return " and ".join(ways) or "eager"

    def make(self, rows: Batch, seed_of_lane_R: Tensor) -> Tensor:
        """Make one step on rows `[S, B, T]` of each seed; losses [R], valid until the next step."""
        shape = torch.Size((len(seed_of_lane_R), *rows.inputs.shape[1:]))
        losses_R = self._made(rows.inputs, rows.loss_targets, seed_of_lane_R, shape)
        if self._pace is not None:
            self._pace.step()
        return losses_R

    def _made(
        self, inputs_SBT: Tensor, targets_SBT: Tensor, seed_of_lane_R: Tensor, shape: torch.Size
    ) -> Tensor:
        graphs = self._graphs
        if graphs is not None and shape not in graphs and self._seen.get(shape, 0) >= 2 and not graphs.full:
            self._capture(graphs, shape)
        if self._captures and graphs is not None and shape in graphs:
            return graphs.replay(inputs_SBT, targets_SBT, seed_of_lane_R, shape)
        inputs_RBT, targets_RBT = (part.index_select(0, seed_of_lane_R) for part in (inputs_SBT, targets_SBT))
        visit = self._seen[shape] = self._seen.get(shape, 0) + 1
        if self._compiles and visit == 2:
            self._compile(shape, inputs_RBT, targets_RBT)
        run = self._compiled.get(shape, self._step)
        if self._captures and visit == 2 and not self._checked:
            return self._check(run, inputs_RBT, targets_RBT)
        return run(self._tensors, inputs_RBT, targets_RBT)

    def _compile(self, shape: torch.Size, inputs_RBT: Tensor, targets_RBT: Tensor) -> None:
        try:
            compiled = compile_step(self._step, self._tensors, inputs_RBT, targets_RBT, self._arithmetic)
            # The first call is what compiles; on copies, so that a failure leaves no half-made step.
            compiled(_copies(self._tensors), inputs_RBT, targets_RBT)
            self._compiled[shape] = compiled
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self._compiles = False
            _tell(f"this step cannot be compiled ({_reason(error)}); it runs as it is")

    def _check(self, run: StepFunction, inputs_RBT: Tensor, targets_RBT: Tensor) -> Tensor:
        """A step that may not wait for the device; one that does is made again, allowed to, and never captured."""
        self._checked = True
        try:
            with refusing_to_wait():
                return run(self._tensors, inputs_RBT, targets_RBT)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self._give_up_capturing(error)
        return run(self._tensors, inputs_RBT, targets_RBT)

    def _capture(self, graphs: Graphs, shape: torch.Size) -> None:
        try:
            graphs.capture(self._compiled.get(shape, self._step), shape)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self._give_up_capturing(error)

    def _give_up_capturing(self, error: Exception) -> None:
        self._captures, self._graphs = False, None
        _tell(
            f"this step cannot be captured in a CUDA graph ({_reason(error)}); its operations are launched one by one"
        )


def _copies(tensors: Tensors) -> Tensors:
    copied: Tensors = tree_map(lambda tensor: tensor.detach().clone(), tensors)
    return copied


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:LONGEST_REASON].rstrip(".")


def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=2)
