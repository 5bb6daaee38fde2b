"""How fast the kernels are, beside the plain torch form of the same op on the same inputs, with their errors.

Legend: B rows, T time, H heads, d head width.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import HAS_TRITON
from statelab.kernels.delta_product import delta_product
from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.gru import gru
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.mlstm import mlstm
from statelab.kernels.rnn import rnn
from statelab.kernels.ssd import ssd

REPEATS = 7
ROWS_COMPARED = 1
"""Rows whose outputs and gradients are compared with float64's."""

Draw = Callable[["Shape"], list[Tensor]]
Run = Callable[..., Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes of the inputs."""

    B: int = 64
    T: int = 1024
    H: int = 4
    d: int = 64

    def __str__(self) -> str:
        return f"B{self.B} T{self.T} H{self.H} d{self.d}"


@dataclass(frozen=True)
class Work:
    """An op with inputs along time, then weights that rows share."""

    draw: Draw
    run: Run
    weights: int = 0
    peer: str = "chunk"
    shape: Shape = Shape()


def _normal(shape: Shape, *last: int) -> Tensor:
    return torch.randn(shape.B, shape.T, shape.H, *last, dtype=torch.float64)


def _qkv(shape: Shape) -> list[Tensor]:
    return [_normal(shape, shape.d) for _ in range(3)]


def _mlstm(shape: Shape) -> list[Tensor]:
    return [*_qkv(shape), _normal(shape), 4 + _normal(shape)]


def _delta(shape: Shape) -> list[Tensor]:
    q, k, v = _qkv(shape)
    return [q, F.normalize(k, dim=-1), v, -_normal(shape).exp() / 20, 2 * torch.sigmoid(_normal(shape))]


def _product(shape: Shape) -> list[Tensor]:
    q, k, v, decay, beta = _delta(shape)
    return [q, *(torch.stack((x, x.flip(1)), dim=2) for x in (k, v)), decay, torch.stack((beta, beta), dim=2)]


def _ssd(shape: Shape) -> list[Tensor]:
    x, write, read = _qkv(shape)
    return [x, -_normal(shape).exp() / 20, write / shape.d**0.5, read]


def _recurrent(gates: int) -> Draw:
    def draw(shape: Shape) -> list[Tensor]:
        weights = [torch.randn(shape.H, shape.d, shape.d, dtype=torch.float64) for _ in range(gates)]
        return [*(_normal(shape, shape.d) for _ in range(gates)), *(w / shape.d**0.5 for w in weights)]

    return draw


def _m2rnn(shape: Shape) -> list[Tensor]:
    weight = torch.eye(shape.d, dtype=torch.float64).expand(shape.H, -1, -1)
    return [*_qkv(shape), torch.sigmoid(2 + _normal(shape)), weight.clone()]


def _first(op: Callable[..., Any], **options: Any) -> Run:
    return lambda *inputs, **how: op(*inputs, **options, **how)[0]


WORKS = {
    "mlstm": Work(_mlstm, _first(mlstm), shape=Shape(T=768, d=48)),
    "orthogonal": Work(_mlstm, _first(mlstm, read="orthogonal"), shape=Shape(T=768, d=48)),
    "quintic": Work(_mlstm, _first(mlstm, read="orthogonal", factor="quintic"), shape=Shape(T=768, d=48)),
    "ssd": Work(_ssd, _first(ssd)),
    "delta_rule": Work(_delta, _first(delta_rule)),
    "delta_product": Work(_product, _first(delta_product)),
    "rnn": Work(_recurrent(1), _first(rnn), weights=1, peer="reference"),
    "gru": Work(_recurrent(3), _first(gru), weights=3, peer="reference"),
    "m2rnn": Work(_m2rnn, _first(m2rnn), weights=1, peer="reference"),
}
HEADER = (
    f"{'op':14s} {'backend':10s} {'precision':10s} {'forward ms':>10s} {'+ backward':>10s} {'GiB':>6s} "
    f"{'error':>8s} {'gradients':>9s}"
)


def lines(
    device: torch.device, names: Sequence[str], precisions: Sequence[str], sizes: dict[str, int | None]
) -> Iterator[str]:
    """A table's lines as they are made: each op by its kernel and by plain torch, times and errors.

    Errors are medians over steps of ‖error‖ / ‖float64‖: of the output, and the worst of the gradients.
    `sizes` replace an op's own; None keeps them. Raises ValueError for unknown names.
    """
    for name in names:
        if name not in WORKS:
            raise ValueError(f"bench kernels: unknown op {name!r}; known: {', '.join(WORKS)}")
    gpu = device.type == "cuda"
    where = torch.cuda.get_device_name(device) if gpu else f"CPU, {torch.get_num_threads()} threads"
    yield f"{where}; torch {torch.__version__}; median of {REPEATS}; float32 inputs"
    yield HEADER
    for name in names:
        work = WORKS[name]
        shape = replace(work.shape, **{key: size for key, size in sizes.items() if size})
        torch.manual_seed(0)
        drawn = [tensor.to(device, torch.float32) for tensor in work.draw(shape)]
        weight = torch.randn_like(drawn[2] if len(drawn) > 2 and drawn[2].dim() == 4 else drawn[0])
        wanted = _compared(work, drawn, weight)
        yield f"{name}: {shape}"
        ways = [("triton", p) for p in precisions] if gpu and HAS_TRITON else []
        for backend, precision in [*ways, (work.peer, "")]:
            yield _line(work, drawn, weight, wanted, backend, precision, name)


def _options(name: str, backend: str, precision: str) -> dict[str, str]:
    if not precision:
        return {"backend": backend}
    key = "read_precision" if name in ("orthogonal", "quintic") else "precision"
    return {"backend": backend, key: precision}


def _line(
    work: Work, drawn: Sequence[Tensor], weight: Tensor, wanted: Sequence[Tensor],
    backend: str, precision: str, name: str,
) -> str:  # fmt: skip
    title = f"{'':14s} {backend:10s} {precision or 'float32':10s}"
    options = _options(name, backend, precision)
    inputs = [tensor.clone().requires_grad_() for tensor in drawn]

    def both() -> list[Tensor]:
        output = work.run(*inputs, **options)
        return [output, *torch.autograd.grad((output * weight).sum(), inputs)]

    def forward() -> None:
        with torch.no_grad():
            work.run(*inputs, **options)

    try:
        before = _peak(drawn[0].device, reset=True)
        made = both()
        peak = (_peak(drawn[0].device) - before) / 2**30
        # Of weights, which all rows share, float64 has one row's gradient alone.
        along = len(wanted)
        errors = [_error(one[:ROWS_COMPARED], other) for one, other in zip(made[:along], wanted, strict=True)]
        del made
        times = f"{_median(forward, drawn[0].device):10.2f} {_median(both, drawn[0].device):10.2f}"
    except (ValueError, RuntimeError) as error:
        return f"{title} {str(error).splitlines()[0][:80]}"
    return f"{title} {times} {peak:6.2f} {errors[0]:8.1e} {max(errors[1:]):9.1e}"


def _compared(work: Work, drawn: Sequence[Tensor], weight: Tensor) -> list[Tensor]:
    """Output and gradients along time of the first rows, by the definition in float64."""
    along = len(drawn) - work.weights
    rows = [tensor[:ROWS_COMPARED] for tensor in drawn[:along]]
    inputs = [tensor.double().requires_grad_() for tensor in [*rows, *drawn[along:]]]
    output = work.run(*inputs, backend="reference")
    return [
        output.detach(),
        *torch.autograd.grad((output * weight[:ROWS_COMPARED].double()).sum(), inputs[:along]),
    ]


def _error(one: Tensor, other: Tensor) -> float:
    one, other = one.detach().double(), other.detach()
    if other.dim() > 3:
        return float(((one - other).norm(dim=-1) / other.norm(dim=-1).clamp_min(1e-30)).median())
    return float(((one - other).abs() / other.abs().mean()).median())


def _peak(device: torch.device, reset: bool = False) -> int:
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return torch.cuda.max_memory_allocated(device)


def _median(work: Callable[[], Any], device: torch.device) -> float:
    """Median time of one call, in milliseconds."""
    times = []
    for _ in range(REPEATS + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])
