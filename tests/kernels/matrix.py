"""Kernels with a matrix state, each as a function from a list of tensors, compared with its definition.

Legend: B rows, T time, J factors, R ranks, H heads, G groups, K key or state width, V value or head width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.delta_product import delta_product
from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.mamba3 import mamba3
from statelab.kernels.ssd import ssd
from tests.kernels.checks import check_near, with_gradients

TOLERANCES = {"bf16": 5e-2, "tf32": 5e-3, "bf16x3": 2e-4, "bf16x6": 5e-5, "ieee": 5e-5}
"""Largest error of a tensor by the precision of products, in units of its largest entry. Sums of log decays over a
chunk are rounded in float32 whatever the products are."""

TOLERANCES |= {"exact": 5e-6, "exact in 16 bits": 1e-2}
"""Of kernels that are sequential in time: rounding of float32, and then of a result to its own type."""


@dataclass(frozen=True)
class Op:
    """`draw(B, T, H, K, V)` gives inputs and, the last `states`, the state; `gates` are the places of float32s."""

    name: str
    run: Callable[..., tuple[Tensor, ...]]
    draw: Callable[[int, int, int, int, int], list[Tensor]]
    gates: tuple[int, ...]
    states: int = 1

    def __str__(self) -> str:
        return self.name

    def inputs(self, *shape: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
        """What has heads and a width as slices of wider tensors, as a projection's parts are."""
        drawn = [tensor.to(device) for tensor in self.draw(*shape)]
        for place, tensor in enumerate(drawn[: -self.states]):
            wide = torch.float32 if place in self.gates else dtype
            sliced = torch.cat((tensor, tensor), dim=-2)[..., : tensor.shape[-2], :]
            drawn[place] = tensor.to(wide) if tensor.ndim == 3 else sliced.to(wide)
        return [*drawn[: -self.states], *(tensor.float() for tensor in drawn[-self.states :])]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def log_decay(*shape: int) -> Tensor:
    """Most near 0, some steps that all but forget, and one that does."""
    decay = -normal(*shape).exp() / 8
    decay = torch.where(torch.rand(shape) < 0.05, 40 * decay, decay)
    decay[0, shape[1] // 2] = -torch.inf
    return decay


def draw_ssd(groups: int | None) -> Callable[[int, int, int, int, int], list[Tensor]]:
    def draw(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
        write, read = normal(B, T, groups or H, K), normal(B, T, groups or H, K)
        return [normal(B, T, H, V), log_decay(B, T, H), write, read, normal(B, H, V, K)]

    return draw


def draw_product(J: int) -> Callable[[int, int, int, int, int], list[Tensor]]:
    def draw(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
        """Keys that come again, and strengths of 0 and 2 among the others."""
        k = F.normalize(normal(B, T, J, H, K), dim=-1)
        k = torch.where(torch.rand(B, T, J, H, 1) < 0.3, k[:, :1, :1], k)
        beta = 2.2 * torch.sigmoid(2 * normal(B, T, J, H)) - 0.1
        inputs = [normal(B, T, H, K), k, normal(B, T, J, H, V), log_decay(B, T, H), beta.clamp(0, 2)]
        return [*inputs, normal(B, H, K, V)]

    return draw


def draw_rule(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
    q, k, v, decay, beta, state = draw_product(1)(B, T, H, K, V)
    return [q, k[:, :, 0], v[:, :, 0], decay, beta[:, :, 0], state]


def draw_mamba3(R: int) -> Callable[[int, int, int, int, int], list[Tensor]]:
    def draw(B: int, T: int, H: int, K: int, V: int) -> list[Tensor]:
        step, weight = F.softplus(normal(B, T, H) - 1), torch.sigmoid(normal(B, T, H))
        angle, pairs = normal(B, T, H, K // 4).tanh(), K // 4
        write, read = normal(B, T, R, H, K), normal(B, T, R, H, K)
        state = [torch.rand(B, H, pairs, dtype=torch.float64) + 3, normal(B, R, H, K), normal(B, R, H, V)]
        inputs = [normal(B, T, R, H, V), -step, step, weight, angle, write, read]
        return [*inputs, *state, normal(B, H, V, K)]

    return draw


def run_mamba3(*inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    y, after = mamba3(*inputs[:7], inputs[7:], **options)  # type: ignore[arg-type, call-arg]
    return y, *after  # type: ignore[return-value]


OPS = {
    "delta_product_2": Op("delta_product_2", delta_product, draw_product(2), gates=(3, 4)),
    "delta_product_3": Op("delta_product_3", delta_product, draw_product(3), gates=(3, 4)),
    "delta_rule": Op("delta_rule", delta_rule, draw_rule, gates=(3, 4)),
    "mamba3_mimo": Op("mamba3_mimo", run_mamba3, draw_mamba3(2), gates=(1, 2, 3, 4), states=4),
    "mamba3_siso": Op("mamba3_siso", run_mamba3, draw_mamba3(1), gates=(1, 2, 3, 4), states=4),
    "ssd": Op("ssd", ssd, draw_ssd(None), gates=(1,)),
    "ssd_one_group": Op("ssd_one_group", ssd, draw_ssd(1), gates=(1,)),
}


def compare(op: Op, inputs: Sequence[Tensor], precision: str, backend: str = "triton") -> None:
    """The kernel, on memory full of NaN, against the definition in float64."""
    with poisoned():
        options = {"precision": precision} if backend == "triton" else {}
        got = with_gradients(op, inputs, backend=backend, **options)
    wanted = with_gradients(op, [tensor.double() for tensor in inputs], backend="reference")
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        check_near(op, place, one, other, TOLERANCES[precision])
    for one, given in zip(got[-len(inputs) :], inputs, strict=True):
        assert one.dtype == given.dtype


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh memory is full of NaN, so that an entry that nothing wrote is seen."""
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            # Torch's own operations around a kernel, such as a sum over phases, may have no deterministic form.
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(False)


def launch(
    name: str, keys: int, values: int, precision: str, time: int = 512, backend: str = "triton"
) -> None:
    """Forward and backward kernels of an op at one width, launched once each, on a CPU's tensors too."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    inputs = OPS[name].inputs(1, time, 2, keys, values, dtype=dtype)
    with patch("statelab.kernels.contract.refusal", return_value=None):
        outputs = OPS[name].run(*(t.requires_grad_() for t in inputs), backend=backend, precision=precision)
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
