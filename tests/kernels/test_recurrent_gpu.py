"""The Triton kernels of tanh RNN, GRU and M²RNN on a GPU, configuration by configuration, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.checks import total
from tests.kernels.graphs import eager_and_replayed
from tests.kernels.recurrent import OPS, TOLERANCES, Op, compare

pytestmark = pytest.mark.gpu
each_op = pytest.mark.parametrize("op", OPS.values(), ids=str)

FLOAT, HALF = torch.float32, torch.bfloat16
CONFIGURATIONS = [
    # op, head or key width, value width, dtype, precision, time
    ("rnn", 16, 0, FLOAT, "bf16x6", 257),
    ("rnn", 32, 0, FLOAT, "tf32", 63),
    ("rnn", 47, 0, HALF, "bf16", 130),
    ("rnn", 64, 0, FLOAT, "bf16x6", 130),
    ("rnn", 64, 0, HALF, "bf16", 257),
    ("gru", 16, 0, FLOAT, "bf16x6", 257),
    ("gru", 32, 0, FLOAT, "tf32", 63),
    ("gru", 47, 0, HALF, "bf16", 130),
    ("gru", 64, 0, HALF, "bf16", 257),
    ("m2rnn", 16, 16, FLOAT, "bf16x6", 257),
    ("m2rnn", 64, 16, HALF, "bf16", 257),
    ("m2rnn", 32, 32, FLOAT, "tf32", 63),
    ("m2rnn", 47, 48, HALF, "bf16", 130),
    ("m2rnn", 64, 64, FLOAT, "bf16x3", 63),
    ("m2rnn", 64, 64, HALF, "bf16", 257),
    ("m2rnn", 70, 33, FLOAT, "bf16x6", 51),
    ("m2rnn_ungated", 64, 16, HALF, "bf16", 130),
]
RARE = [
    ("rnn", 48, 0, FLOAT, "bf16x3", 63),
    ("rnn", 128, 0, FLOAT, "bf16x6", 63),
    ("rnn", 128, 0, HALF, "bf16", 63),
    ("rnn", 32, 0, FLOAT, "ieee", 63),
    ("gru", 48, 0, FLOAT, "bf16x3", 63),
    ("gru", 64, 0, FLOAT, "bf16x6", 130),
    ("gru", 128, 0, FLOAT, "bf16x6", 63),
    ("gru", 128, 0, HALF, "bf16", 63),
    ("m2rnn", 9, 7, FLOAT, "ieee", 63),
    ("m2rnn", 64, 64, FLOAT, "bf16x6", 63),
    ("m2rnn", 64, 64, FLOAT, "tf32", 63),
    ("m2rnn", 64, 64, FLOAT, "ieee", 33),
    ("m2rnn", 64, 32, HALF, "bf16", 130),
    ("m2rnn", 128, 64, HALF, "bf16", 130),
    ("m2rnn", 32, 64, HALF, "bf16", 130),
    ("m2rnn", 16, 128, HALF, "bf16", 63),
    ("m2rnn_ungated", 64, 64, HALF, "bf16", 130),
    ("m2rnn", 128, 128, FLOAT, "bf16x6", 33),
    ("m2rnn", 128, 128, HALF, "bf16", 33),
    ("m2rnn", 128, 128, FLOAT, "tf32", 33),
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def check(name: str, width: int, values: int, dtype: torch.dtype, precision: str, time: int) -> None:
    op = OPS[name]
    inputs = op.inputs(5, time, 3, width, values, dtype=dtype, device="cuda")
    compare(op, inputs, TOLERANCES[precision], precision, gradient_clip=0.8)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_configuration(configuration: tuple[str, int, int, torch.dtype, str, int]) -> None:
    check(*configuration)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", RARE, ids=str)
def test_a_rare_configuration(configuration: tuple[str, int, int, torch.dtype, str, int]) -> None:
    check(*configuration)


@pytest.mark.parametrize("name", ["gru", "rnn"])
def test_many_rows(name: str) -> None:
    """Where many rows fill the card, and blocks of the RNN take 32; the last block is partly empty."""
    op = OPS[name]
    compare(op, op.inputs(2901, 3, 3, 16, 0, dtype=FLOAT, device="cuda"), TOLERANCES["bf16x6"])


@each_op
def test_gates_and_inputs_at_their_ends(op: Op) -> None:
    """Gates of exactly 0 and 1, inputs far beyond where tanh is flat: no overflow, finite gradients."""
    inputs = op.inputs(2, 40, 3, 16, 16, dtype=FLOAT, device="cuda")
    for tensor in inputs[: op.weights]:
        tensor[:, ::7] *= 1e4
    for place in op.gates:
        gate = inputs[place]
        inputs[place] = (gate > 0).float() if op.name == "m2rnn" else gate * 30
    compare(op, inputs, tolerance=1e-4)


@pytest.mark.parametrize("width", [16, 64])
@each_op
def test_gradients_are_the_same_bits_twice(op: Op, width: int) -> None:
    """Of more programs than a card holds at once, so that a race would show."""
    inputs = [t.requires_grad_() for t in op.inputs(140, 33, 3, width, width, dtype=HALF, device="cuda")]
    once, again = (torch.autograd.grad(total(op.run(*inputs)), inputs) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


def lanes_of(op: Op) -> list[Tensor]:
    lanes = [op.inputs(4, 20, 2, 16, 16, dtype=FLOAT, device="cuda") for _ in range(3)]
    return [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]


def step(op: Op, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    outputs = torch.func.vmap(op.run)(*leaves)
    return *outputs, *torch.autograd.grad([output.square().sum() for output in outputs], leaves)


@each_op
def test_lanes_are_lone_runs(op: Op) -> None:
    leaves = lanes_of(op)
    together = step(op, leaves)
    for lane in range(3):
        alone = [leaf[lane].detach().requires_grad_() for leaf in leaves]
        outputs = op.run(*alone)
        gradients = torch.autograd.grad([output.square().sum() for output in outputs], alone)
        for got, wanted in zip(together, (*outputs, *gradients), strict=True):
            torch.testing.assert_close(got[lane], wanted, rtol=1e-5, atol=1e-5)


@each_op
def test_a_captured_step_is_the_step(op: Op) -> None:
    eager, replayed = eager_and_replayed(lambda: lanes_of(op), lambda leaves: step(op, list(leaves)))
    for one, other in zip(replayed, eager, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["gru", "m2rnn"])
def test_a_compiled_step_of_lanes(name: str) -> None:
    leaves = lanes_of(OPS[name])
    compiled = torch.compile(torch.func.vmap(OPS[name].run), fullgraph=True)
    outputs = compiled(*leaves)
    got = [*outputs, *torch.autograd.grad([output.square().sum() for output in outputs], leaves)]
    for one, other in zip(got, step(OPS[name], leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_tanh_keeps_small_values() -> None:
    """Without state weights the RNN is tanh itself: relative error over twelve decades, both signs."""
    x = torch.logspace(-10, 2, 48_000, device="cuda").view(1, -1, 3, 16)
    x = torch.cat((x, -x), dim=1)
    y, _ = OPS["rnn"].run(x, torch.zeros(3, 16, 16, device="cuda"), backend="triton")
    exact = x.double().tanh()
    assert ((y.double() - exact) / exact).abs().max() < 1e-6


def test_more_than_2_to_the_31_elements() -> None:
    """Offsets beyond 32 bits: the last rows of a long batch are those of a short one."""
    x = torch.zeros(2**11 + 1, 2**14, 1, 64, device="cuda", dtype=HALF)
    x[-1] = torch.randn(2**14, 1, 64, device="cuda")
    weight = torch.eye(64, device="cuda")[None] / 2
    y, last = OPS["rnn"].run(x, weight)
    alone, last_alone = OPS["rnn"].run(x[-1:], weight)
    assert torch.equal(y[-1:], alone)
    assert torch.equal(last[-1:], last_alone)
