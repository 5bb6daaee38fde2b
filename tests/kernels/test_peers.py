"""Adapters of other libraries: what they hand over is the op's own function, in the units of that library.

The libraries are stood for by loops over time, written from what they document of their arguments.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.benchmark import lines
from statelab.kernels.peers import PEERS, forget_choices, limit_choices

CPU = torch.device("cpu")
ADD_MODULE = Callable[[str, str, Callable[..., Any]], None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ADD_MODULE:
    def add(path: str, name: str, function: Callable[..., Any]) -> None:
        parts = path.split(".")
        for depth in range(len(parts)):
            module = ModuleType(".".join(parts[: depth + 1]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        setattr(module, name, function)

    return add


def errors_of(name: str, shape: str, title: str, dtype: str) -> tuple[float, float]:
    line = next(line for line in lines(CPU, [name], shapes=[shape], dtype=dtype, peers=True) if title in line)
    error, gradients = line.split("x", 2)[2].split()[1:3]
    return float(error), float(gradients)


def scan(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float) -> Tensor:
    """S ← e^g S + k vᵀ, o = scale · Sᵀ q."""
    state, outputs = torch.zeros(()), []
    for t in range(q.shape[1]):
        state = g[:, t, :, None, None].exp() * state + k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(scale * (q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=1)


def householder(
    *, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, num_householder: int = 1
) -> tuple[Tensor, None]:
    """Each token's factors stand in a row along time; its decay is before the first."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t, :, None, None].exp() * state
        for at in range(t * num_householder, (t + 1) * num_householder):
            held = (k[:, at, :, :, None] * state).sum(-2)
            state = state + k[:, at, :, :, None] * (beta[:, at, :, None] * (v[:, at] - held))[:, :, None]
        outputs.append(scale * (q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=1).to(v.dtype), None


@pytest.mark.parametrize(("width", "title"), [(6, "fla"), (40, "fla K to 128")])
def test_gated_delta_rule(stand_in: ADD_MODULE, width: int, title: str) -> None:
    stand_in("fla.ops.gated_delta_rule", "chunk_gated_delta_rule", householder)
    assert max(errors_of("delta_rule", f"B2,T7,H2,d{width}", title, "float32")) < 1e-5


def test_gated_delta_product(stand_in: ADD_MODULE) -> None:
    stand_in("fla.ops.gated_delta_product", "chunk_gated_delta_product", householder)
    assert max(errors_of("delta_product", "B2,T7,H2,d6", "fla", "bf16")) < 1e-2


def test_simple_gla(stand_in: ADD_MODULE) -> None:
    stand_in("fla.ops.simple_gla", "chunk_simple_gla", lambda **given: (scan(**given), None))
    assert max(errors_of("ssd", "B2,T7,H2,d6", "fla", "float32")) < 1e-5


def test_mamba2(stand_in: ADD_MODULE) -> None:
    def combined(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int) -> Tensor:
        return scan(C, B, dt.unsqueeze(-1) * x, dt * A, scale=1.0)

    stand_in("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined", combined)
    assert max(errors_of("ssd", "B2,T7,H2,d6", "mamba_ssm Mamba-2", "float32")) < 1e-5


def turned(x: Tensor, phase: Tensor) -> Tensor:
    """Pairs (2i, 2i + 1) as complex numbers times e^{iφ}; later channels as they are."""
    last = 2 * phase.shape[-1]
    pairs = torch.view_as_complex(x[..., :last].unflatten(-1, (-1, 2)).contiguous())
    return torch.cat(
        (torch.view_as_real(pairs * torch.polar(torch.ones_like(phase), phase)).flatten(-2), x[..., last:]),
        -1,
    )


def siso(
    *,
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    ADT: Tensor,
    DT: Tensor,
    Trap: Tensor,
    Angles: Tensor,
    **biases: Tensor,
) -> Tensor:
    """h_t = e^{ADT} (h' + (1 − λ) DT B' x') + λ DT B x, time last in ADT, DT and Trap."""
    assert all(not bias.any() for bias in biases.values())
    q, k, v, raw = (tensor.float() for tensor in (Q, K, V, Angles))
    phase = (math.pi * torch.tanh(raw) * DT.transpose(1, 2).unsqueeze(-1)).cumsum(1)
    q, k, weight = turned(q, phase), turned(k, phase), torch.sigmoid(Trap)
    state, before, outputs = torch.zeros(()), torch.zeros(()), []
    for t in range(q.shape[1]):
        decay, step, now = (part[:, :, t, None, None] for part in (ADT.exp(), DT, weight))
        written = k[:, t, :, :, None] * v[:, t, :, None, :]
        state = decay * (state + (1 - now) * step * before) + now * step * written
        before = written
        outputs.append((q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=1).to(V.dtype)


def test_mamba3(stand_in: ADD_MODULE) -> None:
    stand_in("mamba_ssm.ops.triton.mamba3.mamba3_siso_combined", "mamba3_siso_combined", siso)
    assert max(errors_of("mamba3", "B2,T7,H2,d8", "mamba_ssm Mamba-3", "bf16")) < 1e-2


def constant_size(*, q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor) -> Tensor:
    """An mLSTM, heads before time, whose denominator is a constant to autograd; widths are powers of two."""
    assert q.shape[-1] == 16
    q = q / q.shape[-1] ** 0.5
    m, outputs = torch.zeros_like(i[..., 0]), []
    C, n = torch.zeros(()), torch.zeros(())
    for t in range(q.shape[2]):
        log_f = F.logsigmoid(f[..., t])
        m, before = torch.maximum(log_f + m, i[..., t]), m
        decay, write = torch.exp(log_f + before - m).unsqueeze(-1), torch.exp(i[..., t] - m).unsqueeze(-1)
        C = decay.unsqueeze(-1) * C + write.unsqueeze(-1) * k[:, :, t, :, None] * v[:, :, t, None, :]
        n = decay * n + write * k[:, :, t]
        size = torch.maximum((n * q[:, :, t]).sum(-1).abs(), torch.exp(-m)) + 1e-6
        outputs.append((q[:, :, t, :, None] * C).sum(-2) / size.detach().unsqueeze(-1))
    return torch.stack(outputs, dim=2)


def test_mlstm_is_compared_behind_a_norm(stand_in: ADD_MODULE) -> None:
    stand_in("mlstm_kernels.torch.chunkwise.triton_xl_chunk", "mlstm_chunkwise__xl_chunk", constant_size)
    assert max(errors_of("mlstm", "B1,T128,H1,d6", "mlstm_kernels", "float32")) < 1e-4


def test_short_convolution(stand_in: ADD_MODULE, monkeypatch: pytest.MonkeyPatch) -> None:
    def convolve(*, x: Tensor, weight: Tensor, activation: str, backend: str) -> tuple[Tensor, None]:
        padded = F.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
        return F.silu(F.conv1d(padded, weight.unsqueeze(1), groups=len(weight))).transpose(1, 2), None

    stand_in("fla.modules.causal_conv1d", "causal_conv1d", convolve)
    monkeypatch.setitem(PEERS, "short_conv", PEERS["short_conv"][-1:])
    assert max(errors_of("short_conv", "B2,T7,H2,d6", "fla", "float32")) < 1e-5


def test_kernels_of_a_package_choose_between_few(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")

    def body(pointer, n, X, EVEN):  # type: ignore[no-untyped-def]
        pass

    tuned = triton.autotune([triton.Config({"X": place}) for place in range(20)], key=["n"])
    kernel = triton.heuristics({"EVEN": lambda given: True})(tuned(triton.jit(body)))
    module = ModuleType("some_package.inner")
    module.kernel, module.again = kernel, kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_package.inner", module)
    assert limit_choices("some_package", most=4) == 1
    tuner = kernel.fn
    assert [config.kwargs["X"] for config in tuner.configs] == [0, 6, 13, 19]
    tuner.cache["key"] = tuner.configs[0]
    forget_choices("some_package")
    assert not tuner.cache
