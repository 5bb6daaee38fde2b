"""One optimiser step of all lanes as a function of its tensors, which it changes in place.

Nothing in it waits for the device and nothing depends on Python numbers that change from step to step, so that it
can be captured in a CUDA graph or traced and compiled. Legend: R lanes, B rows, T time, P parameters of one lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from statelab.models.anneal import blend_at
from statelab.models.arithmetic import arithmetic_of, products_of
from statelab.models.blend import is_blend
from statelab.models.metrics import finite_lanes, lane_losses
from statelab.models.optimiser import LaneAdamW, Moments, lane_norms
from statelab.models.population import Population
from statelab.models.settings import TrainingSettings


class Lives(NamedTuple):
    """How each lane fares `[R]`: whether it is finite, the step at which it was not, summed loss, gate's step."""

    alive_R: Tensor
    diverged_at_R: Tensor
    train_loss_R: Tensor
    gated_at_R: Tensor


class Tensors(NamedTuple):
    """All that a step reads and changes: the very tensors that are evaluated and kept in checkpoints."""

    flat_RP: Tensor
    buffers: dict[str, Tensor]
    moments: Moments
    lives: Lives


StepFunction = Callable[[Tensors, Tensor, Tensor], Tensor]
"""From the tensors, inputs and loss targets `[R, B, T]` to losses `[R]`."""


def step_function(population: Population, optimiser: LaneAdamW, training: TrainingSettings) -> StepFunction:
    """The step of a population: its structure and settings are fixed, its tensors are arguments."""

    def step(tensors: Tensors, inputs_RBT: Tensor, targets_RBT: Tensor) -> Tensor:
        flat_RP, buffers, moments, lives = tensors
        done = moments.step.long()
        if training.anneal is not None:
            for name, blend_R in buffers.items():
                if is_blend(name):
                    blend_R.copy_(blend_at(training.anneal, done, lives.gated_at_R))
        weights_RP = flat_RP.detach().requires_grad_()
        with torch.enable_grad(), arithmetic_of(training.arithmetic, flat_RP.device):
            losses_R = lane_losses(population.logits(weights_RP, buffers, inputs_RBT), targets_RBT)
        # Not backward(): the node that would add to .grad belongs to the stream on which it was first used.
        with products_of(training.arithmetic):
            (grad_RP,) = torch.autograd.grad(losses_R.sum(), weights_RP)
        losses_R, norm_R = losses_R.detach(), lane_norms(grad_RP)
        with torch.no_grad():
            observe(lives, losses_R, norm_R, done)
            optimiser.update(flat_RP, grad_RP, norm_R, lives.alive_R, moments)
        return losses_R

    return step


def observe(lives: Lives, losses_R: Tensor, norm_R: Tensor, step: int | Tensor) -> None:
    """Freeze lanes whose loss or gradient is not finite, and add up the losses of the others."""
    fine_R = finite_lanes(losses_R, norm_R)
    lives.diverged_at_R.copy_(torch.where(lives.alive_R & ~fine_R, step + 1, lives.diverged_at_R))
    lives.alive_R.logical_and_(fine_R)
    lives.train_loss_R.add_(torch.where(lives.alive_R, losses_R, 0).double())
