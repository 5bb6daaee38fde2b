"""Steps with their state in place: the whole sequence's outputs, and seen where they are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from statelab.models.build import build_mixer
from statelab.models.lineup import LAYER_NAMES, layer_named
from statelab.models.streamer import Streamer, leaves, off, reading
from tests.models.cases import stir

CPU = torch.device("cpu")


class Forgetful(nn.Module):
    """Sums what it reads, and forgets it at every other call."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.calls += 1
        kept = 0 if state is None or self.calls % 2 else state.unsqueeze(1)
        y = x.cumsum(dim=1) + kept
        return y, y[:, -1]


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_streamed_outputs_are_those_of_the_whole_sequence(name: str) -> None:
    torch.manual_seed(0)
    layer = stir(build_mixer(layer_named(name, 32, 16), 32))
    x_BTD = torch.randn(2, 11, 32)
    with reading("float32", CPU):
        whole_BTD, last = layer(x_BTD)
        _, past = layer(x_BTD[:, :6])
    streamer = Streamer(layer, x_BTD[:, 6:7], past, "float32")
    first = streamer.read_all(x_BTD[:, 6:], past)
    assert first.shape[1] == (1 if streamer.grows else 5)
    assert off(first, whole_BTD[:, 6 : 6 + first.shape[1]]) < 1e-5
    assert streamer.grows == (name == "attention")
    if not streamer.grows:
        # Phases are modulo 2π: they are compared by the outputs alone.
        shapes = [leaf.shape for leaf in leaves(last)]
        assert [leaf.shape for leaf in leaves(streamer.state)] == shapes
    assert torch.equal(streamer.read_all(x_BTD[:, 6:], past), first)


def test_outputs_that_are_not_the_sequence_s_are_seen() -> None:
    layer = Forgetful(4)
    x_BTD = torch.ones(1, 9, 4)
    _, past = layer(x_BTD[:, :4])
    streamer = Streamer(layer, x_BTD[:, 4:5], past, "float32")
    whole_BTD = x_BTD.cumsum(dim=1)[:, 4:]
    assert off(streamer.read_all(x_BTD[:, 4:], past), whole_BTD) > 0.1


def test_a_step_chooses_what_is_read_next() -> None:
    def read(tokens_B1: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        total = state + tokens_B1
        return total, total

    streamer = Streamer(read, torch.ones(1, 1), torch.zeros(1, 1), "float32", choose=lambda y: y)
    streamer.begin(torch.ones(1, 1), torch.zeros(1, 1))
    seen = []
    for _ in range(4):
        streamer.make.run()
        seen.append(float(streamer.outputs))
    # 0 + 1, 1 + 1, 2 + 2, 4 + 4
    assert seen == [1, 2, 4, 8]


def test_off_is_in_units_of_the_largest_value_and_sees_nan() -> None:
    assert off(torch.tensor([1.0, 8.5]), torch.tensor([1.0, 8.0])) == 0.0625
    assert not off(torch.tensor([float("nan")]), torch.tensor([1.0])) <= 1
