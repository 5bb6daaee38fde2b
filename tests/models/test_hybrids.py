"""Lists of layers: the published placements, repetitions in a spec, and a hybrid that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.hybrids import every_nth, replace_before, replace_first, unroll

DELTA = LayerConfig(mixer="gated_delta")
ATTENTION = LayerConfig(mixer="attention", options={"position": "none"})
M2RNN = LayerConfig(mixer="m2rnn", options={"key_dim": 4})


def places(layers: tuple[LayerConfig, ...], layer: LayerConfig) -> list[int]:
    return [place for place, other in enumerate(layers) if other == layer]


def test_the_published_placements() -> None:
    """24 layers: attention at 4, 12, 20; M²RNN-1 at 0, M²RNN-3 at 3, 11, 19. 40 layers: five of each."""
    small = every_nth(ATTENTION, DELTA, 24)
    assert places(small, ATTENTION) == [4, 12, 20]
    assert places(replace_first(small, M2RNN), M2RNN) == [0]
    three = replace_before(small, M2RNN)
    assert places(three, M2RNN) == [3, 11, 19]
    assert places(three, ATTENTION) == [4, 12, 20]
    assert places(three, DELTA) == [p for p in range(24) if p not in (3, 4, 11, 12, 19, 20)]
    assert len(places(replace_before(every_nth(ATTENTION, DELTA, 40), M2RNN), M2RNN)) == 5


def test_every_eighth_layer_counted_from_another_place() -> None:
    assert places(every_nth(ATTENTION, DELTA, 16, first=7), ATTENTION) == [7, 15]
    assert places(every_nth(ATTENTION, DELTA, 3, every=1, first=0), ATTENTION) == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: every_nth(ATTENTION, DELTA, 4), "first 4 one of the 4 layers"),
        (lambda: every_nth(ATTENTION, DELTA, 4, every=0), "every 0 must be >= 1"),
        (lambda: replace_first((), M2RNN), "no layer to replace"),
        (lambda: replace_before((DELTA,), M2RNN), "no layer is attention"),
        (lambda: replace_before((ATTENTION, DELTA), M2RNN), r"attention stands at \[0\]; each needs"),
        (lambda: replace_before((DELTA, ATTENTION, ATTENTION), M2RNN), r"attention stands at \[1, 2\]"),
    ],
)
def test_places_that_do_not_exist_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_repetitions_are_written_out() -> None:
    entries = [{"mixer": "gru", "heads": 2, "repeat": 2}, "attention", {"mixer": "mlstm"}]
    assert unroll(entries) == [{"mixer": "gru", "heads": 2}] * 2 + ["attention", {"mixer": "mlstm"}]
    pattern = [{"repeat": 2, "layers": ["m2rnn", {"mixer": "gru", "repeat": 2}]}, "attention"]
    assert unroll(pattern) == ["m2rnn", {"mixer": "gru"}, {"mixer": "gru"}] * 2 + ["attention"]
    assert entries[0] == {"mixer": "gru", "heads": 2, "repeat": 2}


def test_what_is_no_layer_is_left_for_the_specs_own_checks() -> None:
    odd: list[Any] = [7, None, {"layers": "gru"}, {"mixer": "a.b:C", "layers": ["gru"]}]
    assert unroll(odd) == odd


@pytest.mark.parametrize("repeat", [0, -1, 1.0, True, "2", None, 2000])
def test_a_repeat_that_is_no_number_of_times_is_refused(repeat: object) -> None:
    with pytest.raises(ValueError, match="repeat must be a whole number from 1 to 1024, got"):
        unroll([{"mixer": "gru", "repeat": repeat}])


def test_too_many_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1024 layers"):
        unroll([{"repeat": 1000, "layers": [{"mixer": "gru", "repeat": 2}]}])


def test_a_hybrid_reads_in_pieces() -> None:
    torch.manual_seed(0)
    layers = replace_before(every_nth(ATTENTION, DELTA, 6, every=3, first=2), M2RNN)
    assert [layer.mixer for layer in layers] == ["gated_delta", "m2rnn", "attention"] * 2
    model = Backbone(ModelConfig(layers=layers, width=8), vocab_size=5).double()
    tokens = torch.randint(0, 5, (2, 11))
    one, state = model(tokens[:, :4])
    two, _ = model(tokens[:, 4:], state)
    torch.testing.assert_close(torch.cat((one, two), dim=1), model(tokens)[0])
    assert model.state_size is None


def test_hybrids_are_made_without_torch() -> None:
    code = "import sys, statelab.models.hybrids; print('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
