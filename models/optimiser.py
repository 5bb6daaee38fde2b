"""AdamW for R lanes at once: lane r does what torch.optim.AdamW does alone, with its own numbers.

Legend: R lanes, P parameters of one lane, laid out flat.
Decoupled weight decay: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statelab.models.settings import OptimiserSettings, Schedule, TrainingSettings


class Moments(NamedTuple):
    """The optimiser's tensors: finished steps `[]` and each lane's numbers `[R]`, float64; means `[R, P]`."""

    step: Tensor
    mean_RP: Tensor
    square_RP: Tensor
    numbers: dict[str, Tensor]
    decays_P: Tensor


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
        self._schedule: Schedule = training.schedule
        self._total = training.steps
        self.alive_R = torch.ones(len(settings), dtype=torch.bool, device=flat_RP.device)
        self.updated = False
        """Whether this step's update was part of a captured step: the next `step` has nothing left to do."""
        self._numbers, self._decays_P = _columns(settings, flat_RP.device), decays_P
        self.state[flat_RP] = {
            "step": torch.zeros((), dtype=torch.float64, device=flat_RP.device),
            "mean": torch.zeros_like(flat_RP),
            "square": torch.zeros_like(flat_RP),
        }

    @property
    def moments(self) -> Moments:
        """What the optimiser keeps, the tensors themselves: changing them in place changes its state."""
        (flat,) = self.param_groups[0]["params"]
        state = self.state[flat]
        return Moments(state["step"], state["mean"], state["square"], self._numbers, self._decays_P)

    def rate(self, step: Tensor, number: dict[str, Tensor]) -> Tensor:
        """Learning rates [R], float64, of the optimiser step that follows `step` finished ones."""
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
        if not self.updated:
            (flat,) = self.param_groups[0]["params"]
            with torch.no_grad():
                self.update(flat, flat.grad, lane_norms(flat.grad), self.alive_R, self.moments)
        self.updated = False
        return result

    def update(
        self, flat_RP: Tensor, grad_RP: Tensor, norm_R: Tensor, alive_R: Tensor, moments: Moments
    ) -> None:
        """Change `flat` and `moments` in place: a function of the tensors given, so that it can be traced."""
        number, kind = moments.numbers, flat_RP.dtype
        scale = _clip_scale(norm_R, number["clip"])
        # A frozen lane's gradient may be NaN, and 0 × NaN is NaN: select, don't multiply.
        grad = torch.where(alive_R[:, None], grad_RP * scale.to(kind)[:, None], 0)
        rate = self.rate(moments.step, number) * alive_R
        moments.step.add_(1)
        beta1, beta2 = number["beta1"][:, None], number["beta2"][:, None]
        correction1 = 1 - number["beta1"] ** moments.step
        correction2 = 1 - number["beta2"] ** moments.step

        flat_RP.mul_(1 - (rate * number["weight_decay"]).to(kind)[:, None] * moments.decays_P)
        moments.mean_RP.lerp_(grad, (1 - beta1).to(kind))
        moments.square_RP.mul_(beta2.to(kind)).addcmul_(grad, grad * (1 - beta2).to(kind))
        root = correction2.sqrt().to(kind)[:, None]
        denominator = (moments.square_RP.sqrt() / root).add_(number["eps"].to(kind)[:, None])
        flat_RP.addcmul_(moments.mean_RP / denominator, -(rate / correction1).to(kind)[:, None])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, with every tensor on the parameter's device: torch and Lightning leave `step` on the CPU."""
        super().load_state_dict(state_dict)
        (flat,) = self.param_groups[0]["params"]
        self.state[flat] = {name: tensor.to(flat.device) for name, tensor in self.state[flat].items()}


def lane_norms(grad_RP: Tensor) -> Tensor:
    """Euclidean norm [R] of each lane's gradient."""
    norms_R: Tensor = torch.linalg.vector_norm(grad_RP, dim=1)
    return norms_R


def _clip_scale(norm_R: Tensor, clip_R: Tensor) -> Tensor:
    norm = norm_R.to(clip_R.dtype)
    # 1e-6 as in torch.nn.utils.clip_grad_norm_.
    scale = (clip_R / (norm + 1e-6)).clamp(max=1.0)
    return torch.where(clip_R > 0, scale, torch.ones_like(scale))


def _columns(settings: Sequence[OptimiserSettings], device: torch.device) -> dict[str, Tensor]:
    def column(name: str) -> Tensor:
        values = [float(getattr(lane, name)) for lane in settings]
        return torch.tensor(values, dtype=torch.float64, device=device)

    return {name: column(name) for name in OptimiserSettings.__dataclass_fields__}
