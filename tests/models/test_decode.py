"""Streaming steps and sequences at sizes that take no time, checked against whole sequences while they are timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from statelab.models import decode_sequences, decode_steps, decoder
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.decode_sequences import (
    SequenceSizes,
    decodings_of,
    measured_sequences,
    plain_sequences,
    sequence_head,
    sequence_tail,
)
from statelab.models.decode_steps import StepSizes, measured_steps, plain_steps, step_head, step_tail
from statelab.models.decoder import Decoder
from statelab.models.lineup import HYBRID, LAYER_NAMES, MODEL_NAMES, has_state_width
from statelab.models.streamer import TOLERANCE, Streamer
from statelab.models.timing import Spread

CPU = torch.device("cpu")
STEPS = StepSizes(states=(8, 16), width=16, batch=2, context=5, seconds=1e-3)
SEQUENCES = SequenceSizes(lengths=(3,), arithmetic="float32", width=16, layers=2, batch=2, seconds=1e-3)
FORGETFUL = "tests.models.test_streamer:Forgetful"


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_every_layer_s_step_is_timed_and_checked(name: str) -> None:
    ((found, text),) = measured_steps(CPU, [name], STEPS)
    rows = plain_steps(found, STEPS, CPU)
    states = [8, 16] if has_state_width(name) else [None]
    assert [(row["arithmetic"], row["state"]) for row in rows] == [
        (arithmetic, state) for arithmetic in ("float32", "bf16") for state in states
    ]
    for row in rows:
        assert row["note"] == ""
        assert 0 < row["least"] <= row["seconds"] <= row["most"]
        assert row["off"] <= TOLERANCE[row["arithmetic"]]
        assert row["made"] == "eager"
    if has_state_width(name):
        assert rows[0]["state_size"] < rows[1]["state_size"]
    # Four columns, of which a layer without a state width leaves two empty, and the errors of two arithmetics.
    assert len(text.splitlines()[0].split()) == 1 + len(rows) + 2
    assert len(step_head(CPU, STEPS).splitlines()[-1].split()) == 2 * 4 + 2 * 2


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_reads_and_writes_and_is_checked(name: str) -> None:
    ((found, text),) = measured_sequences(CPU, [name], SEQUENCES)
    (row,) = plain_sequences(found, SEQUENCES, CPU)
    assert (row["model"], row["length"], row["note"]) == (name, 3, "")
    assert 0 < row["prefill_least"] <= row["prefill"] <= row["prefill_most"]
    assert 0 < row["both_least"] <= row["both"] <= row["both_most"]
    assert row["off"] < 1e-5
    assert row["estimated"] == (name.startswith(("attention", "hybrid")))
    assert ("~" in text) == row["estimated"]
    assert "read 3" in sequence_head(CPU, SEQUENCES)


def test_layers_whose_steps_are_not_the_sequence_are_told() -> None:
    ((found, _),) = measured_steps(CPU, [FORGETFUL], replace(STEPS, arithmetics=("float32",)))
    assert found[0].seconds is not None
    assert "streamed outputs are" in found[0].note
    assert "Forgetful at float32: streamed outputs are" in step_tail(found)
    ((decoded, _),) = measured_sequences(CPU, [FORGETFUL], SEQUENCES)
    assert "streamed logits are" in sequence_tail(decoded)


def test_a_layer_that_cannot_be_streamed_is_a_row_with_a_sentence() -> None:
    name = "tests.models.own_layers:Shift"
    ((found, text),) = measured_steps(CPU, [name], replace(STEPS, arithmetics=("float32",)))
    assert found[0].seconds is None
    assert "reads whole sequences" in found[0].note
    assert "–" in text
    ((decoded, _),) = measured_sequences(CPU, [name], SEQUENCES)
    assert decoded[0].both is None
    assert "reads whole sequences" in decoded[0].note


def test_what_is_written_is_what_the_whole_sequence_would_write() -> None:
    model = ModelConfig(
        layers=(LayerConfig(mixer="mamba2", options={"head_dim": 8, "d_state": 4}),) * 2, width=16
    )
    decoding = Decoder(model, 5, 2, "float32", CPU)
    tokens_BT = decoding.tokens_BT[:, :5]
    written = []
    decoding._reader.run()
    for _ in range(4):
        written.append(decoding._streamer.inputs.clone())
        decoding._streamer.make.run()
    with torch.no_grad():
        for token_B1 in written:
            assert torch.equal(decoding.model(tokens_BT)[0][:, -1:].argmax(-1), token_B1)
            tokens_BT = torch.cat((tokens_BT, token_B1), dim=1)


def test_steps_of_a_growing_state_are_summed_by_simpson(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step behind c tokens that takes 1 + c² s: 4 steps behind 4 to 8 take 4 + (8³ − 4³) / 3."""

    def step_time(work: Any, *_: Any) -> Spread:
        streamer = getattr(work, "__self__", None)
        tokens = streamer.state[0][1].shape[1] if isinstance(streamer, Streamer) else None
        seconds = 10.0 if tokens is None else 1.0 + tokens**2
        return Spread(median=seconds, least=seconds / 2, most=seconds * 2, runs=4)

    monkeypatch.setattr(decoder, "timed", step_time)
    layer = LayerConfig(mixer="attention", options={"heads": 2})
    both = Decoder(ModelConfig(layers=(layer,), width=8), 4, 1, "float32", CPU).both(1.0)
    assert both.median == pytest.approx(10 + 4 + (8**3 - 4**3) / 3)
    assert (both.least, both.most) == (both.median / 2, both.median * 2)


def test_lengths_behind_one_that_takes_too_long_are_left_out() -> None:
    sizes = replace(SEQUENCES, lengths=(4, 2, 3), seconds=1e-9)
    found = decodings_of(CPU, "rnn", sizes)
    assert [each.both is None for each in found] == [False, True, True]
    assert "rnn at 3, 4: left out, as 2 tokens took" in sequence_tail(found)


@pytest.mark.parametrize(
    ("measure", "sizes", "changes", "names", "sentence"),
    [
        (measured_steps, STEPS, {"arithmetics": ("float32", "fp8")}, None, "unknown arithmetic 'fp8'"),
        (measured_steps, STEPS, {"arithmetics": ("tf32",)}, None, "tf32"),
        (measured_steps, STEPS, {"states": (0,)}, None, "must be >= 1"),
        (measured_steps, STEPS, {}, [HYBRID], "unknown mixer"),
        (measured_sequences, SEQUENCES, {"arithmetic": "fp8"}, None, "unknown arithmetic 'fp8'"),
        (measured_sequences, SEQUENCES, {"lengths": ()}, None, "must be >= 1"),
        (measured_sequences, SEQUENCES, {"width": 100}, None, "is not a multiple|does not divide"),
        (measured_sequences, SEQUENCES, {}, ["gruu"], "Did you mean 'gru'"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_at_once(
    measure: Any, sizes: Any, changes: dict[str, Any], names: list[str] | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        measure(CPU, names, replace(sizes, **changes))


def test_defaults_are_those_of_the_paper_s_tables() -> None:
    sizes = decode_steps.STEP_DEFAULTS["cuda"]
    assert (sizes.arithmetics, sizes.states, sizes.batch) == (("float32", "bf16"), (64, 128), 128)
    assert decode_sequences.SEQUENCE_DEFAULTS["cuda"].batch == 128
