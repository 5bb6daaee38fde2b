"""What is done with lanes to train them, apart from Lightning: rows, losses, gradients, whole steps.

Legend: R lanes, S seeds, B rows, T time.
"""

from __future__ import annotations

from torch import Tensor

from statelab.models.anneal import blend_at
from statelab.models.arithmetic import arithmetic_of, products_of
from statelab.models.blend import blend_buffers, set_blend
from statelab.models.execution import Execution
from statelab.models.metrics import lane_losses
from statelab.models.optimiser import LaneAdamW, lane_norms
from statelab.models.population import Population
from statelab.models.settings import TrainingSettings
from statelab.models.step import Lives, StepFunction, Tensors, observe, step_function
from statelab.models.steps import Steps
from statelab.models.stream import Stream, of_lanes
from statelab.tasks.batch import Batch


class LaneSteps:
    """The part of a Learner that makes its lanes' steps."""

    population: Population
    training_settings: TrainingSettings
    execution: Execution
    steps_done: int
    _stream: Stream
    seeds_S: Tensor
    seed_of_lane_R: Tensor
    alive_R: Tensor
    diverged_at_R: Tensor
    train_loss_R: Tensor
    gated_at_R: Tensor

    def batch(self, step: int) -> Batch:
        """The rows `[R, B, T]` of one step: rows [step·B, (step + 1)·B) of each lane's training split.

        All have one length, the same for all lanes, which a curriculum or mixture gives for the step.
        """
        return of_lanes(self.rows(step), self.seed_of_lane_R)

    def rows(self, step: int) -> Batch:
        """The same rows `[S, B, T]`, each different seed's once: lane r has those of seed `seed_of_lane_R[r]`."""
        return self._stream.batch(step, self.seeds_S)

    def losses(self, batch: Batch) -> Tensor:
        """Training loss [R] of each lane, in nats per position with a loss."""
        with arithmetic_of(self.training_settings.arithmetic, self.population.flat.device):
            return lane_losses(self.population(batch.inputs), batch.loss_targets)

    def gradients(self, step: int) -> Tensor:
        """Leave the gradients of one step in the population; return its losses [R]."""
        self._set_blend(step)
        flat = self.population.flat
        flat.grad = None
        losses = self.losses(self.batch(step))
        with products_of(self.training_settings.arithmetic):
            losses.sum().backward()  # type: ignore[no-untyped-call]
        assert flat.grad is not None
        observe(self._lives(), losses.detach(), lane_norms(flat.grad), step)
        return losses.detach()

    def whole_steps(self, optimiser: LaneAdamW) -> Steps:
        """Steps of gradients and update in one, captured or compiled where that works: `make` for each batch.

        They change the tensors that are evaluated and kept in checkpoints; make them anew after loading those.
        """
        tensors, training = self.tensors(optimiser), self.training_settings
        return Steps(self.step_function(optimiser), tensors, training, self.execution, self.steps_done)

    def step_function(self, optimiser: LaneAdamW) -> StepFunction:
        """The optimiser step of these lanes as a function of `tensors`."""
        return step_function(self.population, optimiser, self.training_settings)

    def tensors(self, optimiser: LaneAdamW) -> Tensors:
        """All that a step reads and changes, the tensors themselves."""
        population = self.population
        return Tensors(population.flat, population.stacked_buffers(), optimiser.moments, self._lives())

    def _set_blend(self, step: int) -> None:
        anneal = self.training_settings.anneal
        if anneal is not None and blend_buffers(self.population):
            set_blend(self.population, blend_at(anneal, step, self.gated_at_R))

    def _lives(self) -> Lives:
        return Lives(self.alive_R, self.diverged_at_R, self.train_loss_R, self.gated_at_R)
