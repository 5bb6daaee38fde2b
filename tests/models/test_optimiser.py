"""Lane r of the stacked optimiser does what torch's own does alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from statelab.models.optimiser import LaneAdamW
from statelab.models.settings import OptimiserSettings, Schedule, TrainingSettings

STEPS = 12
LANES = (
    OptimiserSettings(learning_rate=1e-2, weight_decay=0.1, clip=0.5),
    OptimiserSettings(learning_rate=3e-3, weight_decay=0.0, clip=0.0, warmup=4),
    OptimiserSettings(learning_rate=1.0, beta1=0.5, beta2=0.7, eps=1e-3, clip=100.0, floor=0.25, warmup=1),
)


def gradients(lane: int) -> list[Tensor]:
    return list(torch.randn(STEPS, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(lane)))


def stacked(schedule: Schedule, decays: Tensor) -> Tensor:
    flat = nn.Parameter(torch.linspace(-1, 1, 30, dtype=torch.float64).view(3, 10))
    training = TrainingSettings(length=1, steps=STEPS, schedule=schedule)
    optimiser = LaneAdamW(flat, LANES, training, decays)
    for grads in zip(*(gradients(lane) for lane in range(3)), strict=True):
        flat.grad = torch.stack(grads)
        optimiser.step()
    return flat.detach()


def rate(settings: OptimiserSettings, schedule: Schedule, step: int) -> float:
    """The schedule once more, as torch's users write it: a rising line, then torch's own cosine."""
    if step < settings.warmup:
        return settings.learning_rate * (step + 1) / settings.warmup
    if schedule == "constant":
        return settings.learning_rate
    dummy = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=settings.learning_rate)
    lowest = settings.learning_rate * settings.floor
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(dummy, STEPS - settings.warmup, eta_min=lowest)
    for _ in range(step - settings.warmup):
        dummy.step()
        cosine.step()
    return float(cosine.get_last_lr()[0])


def alone(lane: int, schedule: Schedule, decays: Tensor) -> Tensor:
    settings = LANES[lane]
    start = torch.linspace(-1, 1, 30, dtype=torch.float64).view(3, 10)[lane]
    decaying, others = nn.Parameter(start[decays == 1]), nn.Parameter(start[decays == 0])
    optimiser = torch.optim.AdamW(
        [{"params": [decaying], "weight_decay": settings.weight_decay}, {"params": [others], "weight_decay": 0.0}],
        lr=settings.learning_rate, betas=(settings.beta1, settings.beta2), eps=settings.eps,
    )  # fmt: skip
    for step, grad in enumerate(gradients(lane)):
        decaying.grad, others.grad = grad[decays == 1], grad[decays == 0]
        if settings.clip:
            nn.utils.clip_grad_norm_([decaying, others], settings.clip)
        for group in optimiser.param_groups:
            group["lr"] = rate(settings, schedule, step)
        optimiser.step()
    result = torch.empty(10, dtype=torch.float64)
    result[decays == 1], result[decays == 0] = decaying.detach(), others.detach()
    return result


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_each_lane_equals_torch_adamw(schedule: Schedule) -> None:
    decays = torch.tensor([1, 1, 0, 1, 0, 0, 1, 1, 1, 0], dtype=torch.float64)
    together = stacked(schedule, decays)
    for lane in range(3):
        torch.testing.assert_close(together[lane], alone(lane, schedule, decays), rtol=1e-13, atol=1e-13)


def test_a_frozen_lane_stays_and_others_do_not_notice() -> None:
    def run(bad: bool) -> Tensor:
        flat = nn.Parameter(torch.ones(3, 4))
        training = TrainingSettings(length=1, steps=9)
        optimiser = LaneAdamW(flat, LANES, training, torch.ones(4))
        for step in range(5):
            flat.grad = torch.full((3, 4), 0.1 * (step + 1))
            if bad and step >= 2:
                flat.grad[1] = float("nan")
                optimiser.alive_R = torch.tensor([True, False, True])
            optimiser.step()
        return flat.detach()

    whole, frozen = run(False), run(True)
    assert torch.isfinite(frozen).all()
    assert torch.equal(whole[[0, 2]], frozen[[0, 2]])
    assert not torch.equal(whole[1], frozen[1])


def test_state_survives_a_checkpoint() -> None:
    flat = nn.Parameter(torch.ones(3, 4, dtype=torch.float64))
    training = TrainingSettings(length=1, steps=9)
    optimiser = LaneAdamW(flat, LANES, training, torch.ones(4, dtype=torch.float64))

    def step(optimiser: LaneAdamW, parameter: nn.Parameter, value: float) -> None:
        parameter.grad = torch.full_like(parameter, value)
        optimiser.step()

    step(optimiser, flat, 0.3)
    resumed = nn.Parameter(flat.detach().clone())
    other = LaneAdamW(resumed, LANES, training, torch.ones(4, dtype=torch.float64))
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    step(optimiser, flat, -0.2)
    step(other, resumed, -0.2)
    assert torch.equal(flat, resumed)
