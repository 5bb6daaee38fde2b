"""What the kernels' benchmark runs: each op with inputs like a model's, and what it must do at least.

Legend: B rows, T time, H heads, d head width (of keys, values and states alike), J factors, A rotated pairs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.causal_conv import causal_conv
from statelab.kernels.delta_product import delta_product
from statelab.kernels.delta_rule import delta_rule
from statelab.kernels.gru import gru
from statelab.kernels.m2rnn import m2rnn
from statelab.kernels.mamba3 import mamba3
from statelab.kernels.mlstm import mlstm
from statelab.kernels.rnn import rnn
from statelab.kernels.ssd import ssd

Draw = Callable[["Shape"], list[Tensor]]
Run = Callable[..., Tensor]
TAPS, FACTORS = 4, 2


@dataclass(frozen=True)
class Shape:
    """Sizes of the inputs."""

    B: int = 64
    T: int = 1024
    H: int = 4
    d: int = 64

    def __str__(self) -> str:
        return f"B{self.B} T{self.T} H{self.H} d{self.d}"

    def changed(self, text: str) -> Shape:
        """This shape with the sizes that `text` names, as in "T256,d32". Raises ValueError for anything else."""
        sizes = {}
        for part in filter(None, re.split(r"[,\s]+", text)):
            found = re.fullmatch(r"([BTHd])(\d+)", part)
            if not found or int(found[2]) < 1:
                raise ValueError(
                    f"shape {text!r}: {part!r} is no size; write B, T, H or d and a number, as in T256,d32"
                )
            sizes[found[1]] = int(found[2])
        return replace(self, **sizes)


@dataclass(frozen=True)
class Work:
    """An op, its inputs along time and then `weights` that rows share.

    `products(d)` counts the operations of the recurrence's own products, as written in its definition, for a step
    of one head: forward, and forward with backward. What a chunked form adds or saves is not in it.
    `wide` are the places of inputs that stay in float32, as logarithms of gates do in the models.
    """

    draw: Draw
    run: Run
    products: Callable[[int], tuple[float, float]]
    weights: int = 0
    plain: str = "chunk"
    shape: Shape = Shape()
    wide: tuple[int, ...] = ()
    precision: str | None = "precision"

    def options(self, backend: str, precision: str) -> dict[str, str]:
        """Keyword arguments of `run`."""
        return {"backend": backend} | ({self.precision: precision} if precision and self.precision else {})

    def inputs(self, shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Drawn inputs, rounded to what a kernel is given."""
        return [
            tensor.to(device, torch.float32 if place in self.wide else dtype)
            for place, tensor in enumerate(self.draw(shape))
        ]

    def operations(self, shape: Shape) -> tuple[float, float]:
        """Of all steps: forward, forward with backward."""
        forward, both = self.products(shape.d)
        steps = shape.B * shape.T * shape.H
        return forward * steps, both * steps


def traffic(inputs: Sequence[Tensor], output: Tensor) -> tuple[int, int]:
    """Least bytes forward, and forward with backward: the backward reads inputs and the output's gradient, and
    writes the inputs' gradients."""
    taken = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    given = output.numel() * output.element_size()
    return taken + given, 3 * taken + 2 * given


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


def _mamba3(shape: Shape) -> list[Tensor]:
    x, write, read = (tensor.unsqueeze(2) for tensor in _qkv(shape))
    step = _normal(shape).exp() / 20
    decay = -step * _normal(shape).exp()
    angle = math.pi * torch.tanh(_normal(shape, shape.d // 4)) * step.unsqueeze(-1)
    return [x, decay, step, torch.sigmoid(_normal(shape)), angle, write / shape.d**0.5, read]


def _recurrent(gates: int) -> Draw:
    """Heads share their weights, as those of a peer that has one head must."""

    def draw(shape: Shape) -> list[Tensor]:
        weights = [torch.randn(1, shape.d, shape.d, dtype=torch.float64) for _ in range(gates)]
        spread = (w.expand(shape.H, -1, -1).clone() / shape.d**0.5 for w in weights)
        return [*(_normal(shape, shape.d) for _ in range(gates)), *spread]

    return draw


def _m2rnn(shape: Shape) -> list[Tensor]:
    weight = torch.eye(shape.d, dtype=torch.float64).expand(shape.H, -1, -1)
    return [*_qkv(shape), torch.sigmoid(2 + _normal(shape)), weight.clone()]


def _conv(shape: Shape) -> list[Tensor]:
    x = _normal(shape, shape.d).flatten(-2)
    return [x, torch.randn(TAPS, x.shape[-1], dtype=torch.float64) / TAPS**0.5]


def _first(op: Callable[..., Any], **options: Any) -> Run:
    return lambda *inputs, **how: op(*inputs, **options, **how)[0]


def _linear(squares: float) -> Callable[[int], tuple[float, float]]:
    """Products of d × d numbers, each with two more of its size in the backward."""
    return lambda d: (2 * squares * d * d, 6 * squares * d * d)


def _iterated(forward: int, both: int) -> Callable[[int], tuple[float, float]]:
    """A matrix memory whose read takes these multiples of d³."""
    return lambda d: (4 * d * d + forward * d**3, 12 * d * d + both * d**3)


ORTHOGONAL = Shape(T=768, d=48)
POPULATION = Shape(B=24 * 64, T=128, H=2, d=32)
"""24 lanes of 64 rows: many short sequences."""
WORKS = {
    "mlstm": Work(_mlstm, _first(mlstm), _linear(2), shape=ORTHOGONAL, wide=(3, 4)),
    "orthogonal": Work(
        _mlstm, _first(mlstm, read="orthogonal"), _iterated(16, 56), shape=ORTHOGONAL, wide=(3, 4),
        precision="read_precision",
    ),
    "quintic": Work(
        _mlstm, _first(mlstm, read="orthogonal", factor="quintic"), _iterated(24, 88), shape=ORTHOGONAL,
        wide=(3, 4), precision="read_precision",
    ),
    "ssd": Work(_ssd, _first(ssd), _linear(2), wide=(1,)),
    "mamba3": Work(_mamba3, _first(mamba3), _linear(2), wide=(1, 2, 3, 4)),
    "delta_rule": Work(_delta, _first(delta_rule), _linear(3), wide=(3,)),
    "delta_product": Work(_product, _first(delta_product), _linear(2 * FACTORS + 1), wide=(3,)),
    "rnn": Work(_recurrent(1), _first(rnn), _linear(1), weights=1, plain="reference"),
    "gru": Work(_recurrent(3), _first(gru), _linear(3), weights=3, plain="reference"),
    "m2rnn": Work(
        _m2rnn, _first(m2rnn), lambda d: (2 * d**3 + 4 * d * d, 6 * d**3 + 12 * d * d),
        weights=1, plain="reference", wide=(3,),
    ),
    "short_conv": Work(
        _conv, _first(causal_conv, activation="silu"), lambda d: (2 * TAPS * d, 6 * TAPS * d),
        weights=1, plain="shifted", precision=None,
    ),
    "mlstm_chunks": Work(_mlstm, _first(mlstm, programs="chunks"), _linear(2), shape=POPULATION, wide=(3, 4)),
    "mlstm_sequences": Work(
        _mlstm, _first(mlstm, programs="sequences"), _linear(2), shape=POPULATION, wide=(3, 4)
    ),
}  # fmt: skip


def work_of(name: str) -> Work:
    """The op of that name. Raises ValueError, with the known ones, for a name that there is not."""
    if name not in WORKS:
        raise ValueError(f"bench kernels: unknown op {name!r}; known: {', '.join(WORKS)}")
    return WORKS[name]
