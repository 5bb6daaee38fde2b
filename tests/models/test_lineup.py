"""The models that are timed beside each other: all of the registry, the published hybrids, in every arithmetic."""

from __future__ import annotations

import sys

import pytest
import torch

from statelab.kernels.precision import choose_precision
from statelab.models import MIXERS
from statelab.models.build import build_mixer
from statelab.models.lineup import (
    HYBRID,
    HYBRID_M2RNN,
    LAYER_NAMES,
    MODEL_NAMES,
    has_state_width,
    layer_named,
    model_named,
)
from statelab.models.streamer import leaves, lighten, reading


def mixers(name: str, layers: int) -> list[str]:
    return [layer.mixer for layer in model_named(name, 128, layers).layers]


def test_every_mixer_of_the_registry_is_there() -> None:
    assert set(MIXERS) <= set(LAYER_NAMES) <= set(MODEL_NAMES)
    for name in MIXERS:
        assert mixers(name, 3) == [name] * 3


def test_hybrids_have_attention_and_the_first_m2rnn_where_the_paper_has_them() -> None:
    delta = ["gated_delta"]
    assert mixers(HYBRID, 8) == delta * 4 + ["attention"] + delta * 3
    assert mixers(HYBRID_M2RNN, 8) == ["m2rnn", *mixers(HYBRID, 8)[1:]]
    assert [place for place, name in enumerate(mixers(HYBRID, 24)) if name == "attention"] == [4, 12, 20]
    assert mixers(HYBRID, 2) == ["gated_delta", "attention"]
    assert model_named(HYBRID, 128, 8).layers[4].options["position"] == "none"


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_states_have_the_width_that_is_asked_for(name: str) -> None:
    def floats(state: int) -> int:
        size = build_mixer(layer_named(name, 128, state), 128).state_size
        return size if isinstance(size, int) else 0

    if has_state_width(name):
        # A convolution's part of the state does not grow with its width.
        assert 1.7 < floats(128) / floats(64) < 2.1
    else:
        assert floats(128) == floats(64)


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_every_layer_reads_and_learns_in_bf16_with_a_wider_state(name: str) -> None:
    torch.manual_seed(0)
    layer = build_mixer(layer_named(name, 32), 32)
    x_BTD = torch.randn(2, 5, 32)
    with torch.autocast("cpu", torch.bfloat16):
        y_BTD, state = layer(x_BTD)
        y_BTD, state = layer(x_BTD, state)
    y_BTD.float().square().sum().backward()
    assert y_BTD.dtype == torch.bfloat16
    assert {leaf.dtype for leaf in leaves(state)} == {torch.float32}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_in_bf16_a_recurrence_is_given_16_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it reads an op chooses how its kernel multiplies: from float32, six times as much."""
    chosen: list[str] = []

    def noted(op: str, precision: str, like: torch.Tensor) -> str:
        chosen.append(choose_precision(op, precision, like))
        return chosen[-1]

    layer = build_mixer(layer_named(name, 32), 32)
    layer(torch.randn(2, 5, 32))  # Now all of its modules are there.
    for module in list(sys.modules.values()):
        if vars(module).get("choose_precision") is choose_precision and module.__name__ != __name__:
            monkeypatch.setattr(module, "choose_precision", noted)
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(2, 5, 32))
    # What comes behind the first is a parallel form that is made of another op.
    assert chosen[:1] == ([] if name == "attention" else ["bf16"])


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_linear_weights_kept_in_16_bits_change_no_number(name: str) -> None:
    torch.manual_seed(0)
    layer = build_mixer(layer_named(name, 32), 32)
    x_BTD = torch.randn(2, 5, 32)
    with reading("bf16", torch.device("cpu")):
        before = layer(x_BTD)[0]
    lighten(layer, "bf16")
    assert any(p.dtype == torch.bfloat16 for p in layer.parameters())
    with reading("bf16", torch.device("cpu")):
        assert torch.equal(layer(x_BTD)[0], before)


@pytest.mark.parametrize("name", ["mlsmt", "attention,", ""])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"unknown mixer {name!r}; known: attention, .*{HYBRID_M2RNN}"):
        model_named(name, 128, 2)
