"""Every op as a function from a list of tensors to a tuple of tensors, so that one contract tests them all.

Legend: B rows, T time, H heads, K key width, V value width, G groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.delta_product import delta_product
from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.gru import gru
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.mamba3 import mamba3
from statelab.kernels.mlstm import mlstm
from statelab.kernels.rnn import rnn
from statelab.kernels.ssd import ssd
from statelab.kernels.whiten import whiten

TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 2e-2}
"""Largest error of a tensor, in units of its largest entry."""

B, H, K, V = 2, 3, 9, 7


@dataclass(frozen=True)
class Case:
    """`draw(T)` gives inputs along time, then other inputs, then the state; `run` gives output, then
    state."""

    name: str
    draw: Callable[[int], list[Tensor]]
    run: Callable[[Sequence[Tensor | None], str], tuple[Tensor, ...]]
    along_time: int
    states: int
    parallel: bool = True

    def __str__(self) -> str:
        return self.name


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def draw_gru(time: int) -> list[Tensor]:
    inputs = [normal(B, time, H, K) for _ in range(3)]
    return [*inputs, *(normal(H, K, K) / K**0.5 for _ in range(3)), normal(B, H, K).tanh()]


def draw_ssd(groups: int) -> Callable[[int], list[Tensor]]:
    def draw(time: int) -> list[Tensor]:
        decay = -normal(B, time, H).exp()
        read, write = normal(B, time, groups, K), normal(B, time, groups, K)
        return [normal(B, time, H, V), decay, write, read, normal(B, H, V, K)]

    return draw


def draw_delta(time: int) -> list[Tensor]:
    unit = F.normalize(normal(B, time, H, K), dim=-1)
    decay, beta = -normal(B, time, H).exp() / 4, 2 * torch.sigmoid(2 * normal(B, time, H))
    return [normal(B, time, H, K), unit, normal(B, time, H, V), decay, beta, normal(B, H, K, V)]


def draw_product(factors: int) -> Callable[[int], list[Tensor]]:
    def draw(time: int) -> list[Tensor]:
        unit = F.normalize(normal(B, time, factors, H, K), dim=-1)
        decay, beta = -normal(B, time, H).exp() / 4, 2 * torch.sigmoid(2 * normal(B, time, factors, H))
        return [normal(B, time, H, K), unit, normal(B, time, factors, H, V), decay, beta, normal(B, H, K, V)]

    return draw


def draw_rnn(time: int) -> list[Tensor]:
    return [normal(B, time, H, K), normal(H, K, K) / K**0.5, normal(B, H, K).tanh()]


def draw_m2rnn(groups: int) -> Callable[[int], list[Tensor]]:
    def draw(time: int) -> list[Tensor]:
        q, k = normal(B, time, groups, K), normal(B, time, groups, K)
        v, forget = normal(B, time, H, V), torch.sigmoid(2 * normal(B, time, H))
        return [q, k, v, forget, normal(H, V, V) / V**0.5, normal(B, H, K, V).tanh()]

    return draw


def draw_mlstm(time: int) -> list[Tensor]:
    q, k, v = normal(B, time, H, K), normal(B, time, H, K), normal(B, time, H, V)
    gates = [2 * normal(B, time, H), 2 * normal(B, time, H) + 3]
    return [q, k, v, *gates, normal(B, H, K, V), normal(B, H, K), normal(B, H)]


def draw_mamba3(ranks: int) -> Callable[[int], list[Tensor]]:
    """A step's decay, step and weight as a layer makes them; phases away from where they wrap around."""

    def draw(time: int) -> list[Tensor]:
        step = F.softplus(normal(B, time, H))
        weight, angle = torch.sigmoid(normal(B, time, H)), normal(B, time, H, 3).tanh()
        read, write = normal(B, time, ranks, H, K), normal(B, time, ranks, H, K)
        x, decay = normal(B, time, ranks, H, V), -step * normal(B, time, H).exp()
        state = [torch.rand(B, H, 3, dtype=torch.float64) + 3, normal(B, ranks, H, K)]
        state += [normal(B, ranks, H, V), normal(B, H, V, K)]
        return [x, decay, step, weight, angle, write, read, *state]

    return draw


def draw_whiten(time: int) -> list[Tensor]:
    past = normal(B, H, K, 3)
    return [normal(B, time, H, K), normal(B, time, H, K), past @ past.transpose(-1, -2)]


def run_gru(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return gru(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_ssd(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return ssd(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_delta(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return delta_rule(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_product(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return delta_product(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_m2rnn(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return m2rnn(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_rnn(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return rnn(*inputs, backend=backend)  # type: ignore[arg-type, misc]


def run_mlstm(**options: Any) -> Callable[[Sequence[Tensor | None], str], tuple[Tensor, ...]]:
    def run(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
        state = None if inputs[5] is None else tuple(inputs[5:])
        y, after = mlstm(*inputs[:5], state, **options, backend=backend)  # type: ignore[arg-type, misc]
        return y, *after

    return run


def run_mamba3(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    state = None if inputs[7] is None else tuple(inputs[7:])
    y, after = mamba3(*inputs[:7], state, backend=backend)  # type: ignore[arg-type, misc]
    return y, *after  # type: ignore[return-value]


def run_whiten(inputs: Sequence[Tensor | None], backend: str) -> tuple[Tensor, ...]:
    return whiten(*inputs, ridge=0.1, backend=backend)  # type: ignore[arg-type, misc]


def mlstm_case(name: str, **options: Any) -> Case:
    return Case(f"mlstm_{name}", draw_mlstm, run_mlstm(**options), along_time=5, states=3)


CASES = [
    Case("delta_rule", draw_delta, run_delta, along_time=5, states=1),
    Case("delta_product_1", draw_product(1), run_product, along_time=5, states=1),
    Case("delta_product_3", draw_product(3), run_product, along_time=5, states=1),
    Case("gru", draw_gru, run_gru, along_time=3, states=1, parallel=False),
    Case("m2rnn_head_per_query", draw_m2rnn(H), run_m2rnn, along_time=4, states=1, parallel=False),
    Case("m2rnn_one_query", draw_m2rnn(1), run_m2rnn, along_time=4, states=1, parallel=False),
    Case("mamba3_mimo", draw_mamba3(3), run_mamba3, along_time=7, states=4),
    Case("mamba3_siso", draw_mamba3(1), run_mamba3, along_time=7, states=4),
    mlstm_case("blend", read="orthogonal", blend=torch.tensor(0.3)),
    mlstm_case("delta", write="delta"),
    mlstm_case("delta_orthogonal", write="delta", read="orthogonal", iterations=2),
    mlstm_case("orthogonal", read="orthogonal"),
    mlstm_case("plain"),
    mlstm_case("polar", read="orthogonal", factor="polar"),
    mlstm_case("quintic", read="orthogonal", factor="quintic", normaliser=False),
    Case("ssd_group_per_head", draw_ssd(H), run_ssd, along_time=4, states=1),
    Case("ssd_one_group", draw_ssd(1), run_ssd, along_time=4, states=1),
    Case("whiten", draw_whiten, run_whiten, along_time=2, states=1),
]
PARALLEL = [case for case in CASES if case.parallel]
BACKENDS = [(case, "reference") for case in CASES] + [(case, "chunk") for case in PARALLEL]


def weighted(outputs: Sequence[Tensor]) -> Tensor:
    """A sum of all outputs whose gradient differs from entry to entry."""
    total = torch.zeros((), dtype=torch.float64)
    for output in outputs:
        weights = torch.linspace(-1, 1.5, output.numel(), dtype=torch.float64).view(output.shape)
        total = total + (output.double() * weights).sum()
    return total


def with_gradients(
    run: Callable[[Sequence[Tensor], str], tuple[Tensor, ...]], inputs: Sequence[Tensor], backend: str
) -> list[Tensor]:
    """Outputs, states, and the gradient of `weighted` for every input."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = run(leaves, backend)
    return [*outputs, *torch.autograd.grad(weighted(outputs), leaves)]


def assert_near(got: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float) -> None:
    assert len(got) == len(wanted)
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert one.shape == other.shape, place
        assert torch.isfinite(one).all(), f"tensor {place} is not finite"
        error = (one.double() - other.double()).abs().max() / other.double().abs().max().clamp_min(1e-6)
        assert error <= tolerance, f"tensor {place}: relative error {error:.2e} > {tolerance:.0e}"
