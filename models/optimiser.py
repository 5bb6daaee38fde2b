"""AdamW for R lanes at once: lane r does what torch.optim.AdamW does alone, with its own numbers.

Legend: R lanes, P parameters of one lane, laid out flat.
Decoupled weight decay: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from statelab.models.settings import OptimiserSettings, Schedule, TrainingSettings


class LaneAdamW(torch.optim.Optimizer):
    """AdamW over one flat parameter `[R, P]`, with a schedule and clipping of each lane's own.

    Step t of lane r equals `clip_grad_norm_` followed by `torch.optim.AdamW.step` with lane r's numbers and the
    rate `rate(t)`. Lanes whose `alive` is False stay as they are.
    """

    def __init__(
        self,
        flat_RP: Tensor,
        settings: Sequence[OptimiserSettings],
        training: TrainingSettings,
        decays_P: Tensor,
    ) -> None:
        assert flat_RP.shape[0] == len(settings)
        super().__init__([flat_RP], {})
        self._numbers = _columns(settings, flat_RP.device)
        self._schedule: Schedule = training.schedule
        self._total = training.steps
        self._decays_P = decays_P
        self.alive_R = torch.ones(len(settings), dtype=torch.bool, device=flat_RP.device)
        self.state[flat_RP] = {
            "step": torch.zeros((), dtype=torch.float64, device=flat_RP.device),
            "mean": torch.zeros_like(flat_RP),
            "square": torch.zeros_like(flat_RP),
        }

    def rate(self, step: Tensor) -> Tensor:
        """Learning rates [R], float64, of the optimiser step that follows `step` finished ones."""
        number = self._numbers
        factor = torch.ones_like(number["learning_rate"])
        if self._schedule == "cosine":
            span = (self._total - number["warmup"]).clamp(min=1)
            progress = ((step - number["warmup"]) / span).clamp(0, 1)
            factor = number["floor"] + (1 - number["floor"]) * 0.5 * (1 + torch.cos(math.pi * progress))
        rising = (step + 1) / number["warmup"].clamp(min=1)
        factor = torch.where(step < number["warmup"], rising, factor)
        return number["learning_rate"] * factor

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step from the gradients of `flat`; a closure is evaluated first, as torch's optimisers do."""
        result = None if closure is None else closure()
        with torch.no_grad():
            self._step()
        return result

    def _step(self) -> None:
        (flat,) = self.param_groups[0]["params"]
        grad, state = flat.grad, self.state[flat]
        number, kind = self._numbers, flat.dtype
        alive = self.alive_R[:, None]
        scale = _clip_scale(grad, number["clip"])
        # A frozen lane's gradient may be NaN, and 0 × NaN is NaN: select, don't multiply.
        grad = torch.where(
            alive, grad * scale.to(kind)[:, None], torch.zeros((), dtype=kind, device=grad.device)
        )
        rate = self.rate(state["step"]) * self.alive_R
        state["step"] += 1
        beta1, beta2 = number["beta1"][:, None], number["beta2"][:, None]
        correction1 = 1 - number["beta1"] ** state["step"]
        correction2 = 1 - number["beta2"] ** state["step"]

        flat.mul_(1 - (rate * number["weight_decay"]).to(kind)[:, None] * self._decays_P)
        state["mean"].lerp_(grad, (1 - beta1).to(kind))
        state["square"].mul_(beta2.to(kind)).addcmul_(grad, grad * (1 - beta2).to(kind))
        root = correction2.sqrt().to(kind)[:, None]
        denominator = (state["square"].sqrt() / root).add_(number["eps"].to(kind)[:, None])
        flat.addcmul_(state["mean"] / denominator, -(rate / correction1).to(kind)[:, None])


def lane_norms(grad_RP: Tensor) -> Tensor:
    """Euclidean norm [R] of each lane's gradient."""
    norms_R: Tensor = torch.linalg.vector_norm(grad_RP, dim=1)
    return norms_R


def _clip_scale(grad_RP: Tensor, clip_R: Tensor) -> Tensor:
    norm = lane_norms(grad_RP).to(clip_R.dtype)
    # 1e-6 as in torch.nn.utils.clip_grad_norm_.
    scale = (clip_R / (norm + 1e-6)).clamp(max=1.0)
    return torch.where(clip_R > 0, scale, torch.ones_like(scale))


def _columns(settings: Sequence[OptimiserSettings], device: torch.device) -> dict[str, Tensor]:
    def column(name: str) -> Tensor:
        values = [float(getattr(lane, name)) for lane in settings]
        return torch.tensor(values, dtype=torch.float64, device=device)

    return {name: column(name) for name in OptimiserSettings.__dataclass_fields__}
