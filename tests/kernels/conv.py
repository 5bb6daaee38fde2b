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
from tests.kernels.recurrent import normal, poisoned, total


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
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    outputs = setting.run(leaves, backend)
    return [*(output.detach() for output in outputs), *torch.autograd.grad(total(outputs), leaves)]


def compare(setting: Setting, tensors: Sequence[Tensor], tolerance: float) -> None:
    """The kernel, on memory full of NaN, against the definition in float64."""
    with poisoned():
        got = with_gradients(setting, tensors, "triton")
    wanted = with_gradients(setting, [tensor.double() for tensor in tensors], "reference")
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert one.shape == other.shape, place
        if not one.numel():
            continue
        assert torch.isfinite(one).all(), f"{setting}: tensor {place} is not finite"
        error = ((one.double() - other).abs().max() / other.abs().max().clamp_min(1e-6)).item()
        assert error <= tolerance, f"{setting}: tensor {place}: relative error {error:.2e} > {tolerance:.0e}"
    for one, given in zip(got[2:], tensors, strict=True):
        assert one.dtype == given.dtype


def launch(setting: Setting) -> None:
    """Both kernels, launched once; see `tests.kernels.offline`."""
    tensors = [tensor.requires_grad_() for tensor in setting.draw()]
    with patch("statelab.kernels.contract.refusal", lambda tensors: None):
        y, last = setting.run(tensors, "triton")
    torch.autograd.backward((y, last), [torch.ones_like(y), torch.ones_like(last)])
