"""Speed benchmarks on a card: steps are captured, and captured steps are still the sequence's."""

from __future__ import annotations

import pytest
import torch

from statelab.models.decode_sequences import SequenceSizes, measured_sequences
from statelab.models.decode_steps import StepSizes, measured_steps
from statelab.models.lineup import LAYER_NAMES, MODEL_NAMES
from statelab.models.throughput import Sizes, measured

pytestmark = pytest.mark.gpu

CARD = torch.device("cuda")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_training_steps_are_captured(name: str) -> None:
    sizes = Sizes(lengths=(64, 128), tokens=512, arithmetic="bf16", layers=2, seconds=0.05)
    ((speeds, _),) = measured(CARD, [name], sizes)
    for speed in speeds:
        assert (speed.made, speed.note) == ("captured", "")
        assert speed.tokens_per_second is not None


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_streaming_steps_are_captured_and_right(name: str) -> None:
    ((found, _),) = measured_steps(CARD, [name], StepSizes(states=(64,), batch=4, context=48, seconds=0.02))
    for latency in found:
        assert (latency.made, latency.note) == ("captured", "")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_sequences_are_captured_and_right(name: str) -> None:
    sizes = SequenceSizes(lengths=(24,), arithmetic="bf16", layers=2, batch=4, seconds=0.1)
    ((found, _),) = measured_sequences(CARD, [name], sizes)
    assert (found[0].made, found[0].note) == ("captured", "")
