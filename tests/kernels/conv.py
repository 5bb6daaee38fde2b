"""The causal convolution's kernel as functions from tensors to tensors, compared with the definition.

Legend: B rows, T time, C channels, J taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import Tensor

from statelab.kernels.causal_conv import causal_conv
from tests.kernels.checks import check_near, gradients_of
from tests.kernels.recurrent import normal, poisoned


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes and parts of a convolution."""

    B: int = 2
    T: int = 9
    C: int = 5
    J: int = 4
    bias: bool = True
    state: bool = True
    silu: bool = True
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        parts = [name for name in ("bias", "state", "silu") if getattr(self, name)]
        return "-".join((f"B{self.B}T{self.T}C{self.C}J{self.J}", *parts, str(self.dtype)[6:]))

    def draw(self, device: str = "cpu") -> list[Tensor]:
        """Inputs as slices of wider tensors, as a projection's parts are; then weight, bias, state."""
        x = torch.cat((normal(self.B, self.T, self.C),) * 2, dim=-1).to(device, self.dtype)[..., : self.C]
        rest = [normal(self.J, self.C)]
        rest += [normal(self.C)] if self.bias else []
        rest += [normal(self.B, self.J - 1, self.C)] if self.state else []
        return [x, *(tensor.to(device, torch.float32) for tensor in rest)]

    def run(self, tensors: Sequence[Tensor], backend: str) -> tuple[Tensor, Tensor]:
        x, weight, *rest = tensors
        bias = rest[0] if self.bias else None
        state = rest[-1] if self.state else None
        activation = "silu" if self.silu else "none"
        return causal_conv(x, weight, bias, state, activation=activation, backend=backend)  # type: ignore[arg-type]


def with_gradients(setting: Setting, tensors: Sequence[Tensor], backend: str) -> list[Tensor]:
    """Output, last inputs, and the gradient of `total` for every tensor."""
    return gradients_of(lambda *leaves: setting.run(leaves, backend), tensors)


def compare(setting: Setting, tensors: Sequence[Tensor], tolerance: float) -> None:
    """The kernel, on memory full of NaN, against the definition in float64."""
    with poisoned():
        got = with_gradients(setting, tensors, "triton")
    wanted = with_gradients(setting, [tensor.double() for tensor in tensors], "reference")
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one.numel() or other.numel():
            check_near(setting, place, one, other, tolerance)
        else:
            assert one.shape == other.shape, place
    for one, given in zip(got[2:], tensors, strict=True):
        assert one.dtype == given.dtype


def launch(setting: Setting, places: Sequence[int] = (0, 1)) -> None:
    """The kernels, launched once, for gradients of the outputs at these places; see `tests.kernels.offline`."""
    tensors = [tensor.requires_grad_() for tensor in setting.draw()]
    with patch("statelab.kernels.contract.refusal", lambda tensors: None):
        both = setting.run(tensors, "triton")
    outputs = [both[place] for place in places]
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
