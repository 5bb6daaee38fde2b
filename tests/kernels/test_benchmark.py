"""The kernels' benchmark: every op has a line, with an error that says the compared forms agree."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from statelab.kernels.adapters import plain
from statelab.kernels.benchmark import HEADER, lines
from statelab.kernels.peers import PEERS, Peer
from statelab.kernels.works import WORKS, Shape, traffic

CPU = torch.device("cpu")
SMALL = "B1,T6,H2,d4"


def cells(line: str) -> list[str]:
    """What follows the title and the products of a line."""
    return line[42:].split()


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_every_op_is_timed_and_compared(dtype: str) -> None:
    found = list(lines(CPU, list(WORKS), shapes=[SMALL], dtype=dtype))
    assert found[1] == HEADER
    rows = [line for line in found[2:] if line.startswith("  ")]
    assert len(rows) == len(WORKS)
    longer = 0
    for row in rows:
        assert row.split()[0] in ("chunk", "reference", "shifted")
        forward, both, _, *errors = cells(row)[:5]
        assert float(forward) > 0
        longer += float(both) > float(forward)
        assert max(map(float, errors)) < (1e-4 if dtype == "float32" else 2e-2), row
    # A machine that is busy for a moment makes one forward pass longer than both.
    assert longer > len(rows) / 2


@pytest.mark.parametrize("name", ["mlstm", "orthogonal", "rnn", "gru"])
def test_peers_that_torch_has_compute_the_same(name: str) -> None:
    found = list(lines(CPU, [name], shapes=[SMALL], peers=True))[4:]
    assert len(found) == len([peer for peer in PEERS[name] if peer.module is None])
    for row in found:
        *_, error, gradients = cells(row)[:7]
        if name == "gru":
            assert (error, gradients) == ("another", "function")
        else:
            assert max(float(error), float(gradients)) < 1e-5, row
        assert cells(row)[2].endswith("x")


def test_peers_of_a_convolution_in_torch() -> None:
    row = next(line for line in lines(CPU, ["short_conv"], shapes=[SMALL], peers=True) if "conv1d" in line)
    assert max(map(float, cells(row)[5:7])) < 1e-5


def test_a_peer_that_is_not_installed_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fla", "mamba_ssm"):
        monkeypatch.setitem(sys.modules, module, None)
    found = list(lines(CPU, ["ssd"], shapes=[SMALL], peers=True))
    assert [" ".join(line.split()) for line in found[-2:]] == [
        "fla not installed: pip install flash-linear-attention",
        "mamba_ssm Mamba-2 not installed: pip install mamba-ssm",
    ]


def test_a_peer_that_fails_and_one_that_is_wrong_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*inputs: torch.Tensor) -> torch.Tensor:
        raise AssertionError("no such width\nand more")

    def wrong(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = WORKS["rnn"].run(x, weight, backend="reference")
        return y.detach() + x - x.detach() + 0 * weight.sum()

    peers = (Peer("failing", plain(fails)), Peer("wrong", plain(wrong)))
    monkeypatch.setitem(PEERS, "rnn", peers)
    *_, failing, bad = lines(CPU, ["rnn"], shapes=[SMALL], peers=True)
    assert failing.split("torch's")[1].strip() == "no such width"
    assert bad.endswith("gradients are wrong: its times are no measure")


def test_lanes_are_timed_against_one() -> None:
    *_, line = lines(CPU, ["delta_rule"], shapes=[SMALL], lanes=3)
    assert "chunk, 3 lanes" in line
    assert "× the time of one" in line
    assert line.endswith("3 × its work")


@pytest.mark.parametrize("name", ["rnn", "gru"])
def test_operations_are_those_that_torch_counts(name: str) -> None:
    shape = Shape(2, 5, 3, 4)
    work = WORKS[name]
    inputs = [tensor.requires_grad_() for tensor in work.draw(shape)]
    with FlopCounterMode(display=False) as counter:
        y = work.run(*inputs, backend="reference")
    forward = counter.get_total_flops()
    assert forward == work.operations(shape)[0]
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    # The first step's state has no gradient: of its products one half is missing.
    both = forward + counter.get_total_flops() * (2 * shape.T) / (2 * shape.T - 1)
    assert both == pytest.approx(work.operations(shape)[1], rel=0.05)


def test_traffic_counts_each_tensor_as_often_as_it_must_move() -> None:
    x, y = torch.zeros(3, dtype=torch.bfloat16), torch.zeros(5)
    assert traffic([x], y) == (6 + 20, 3 * 6 + 2 * 20)


def test_shapes_are_read_as_changes() -> None:
    assert Shape().changed("T256, d32") == replace(Shape(), T=256, d=32)
    assert Shape().changed("") == Shape()
    for text in ("T", "256", "K3", "T0", "T-1"):
        with pytest.raises(ValueError, match="is no size; write B, T, H or d and a number"):
            Shape().changed(text)


def test_what_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="unknown op 'lstm'; known: mlstm, orthogonal"):
        next(lines(CPU, ["lstm"]))
    with pytest.raises(ValueError, match="unknown dtype 'half'; known: bf16, float32"):
        next(lines(CPU, ["rnn"], dtype="half"))
