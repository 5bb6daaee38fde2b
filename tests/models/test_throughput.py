"""Training speed at sizes that take no time, and what happens when something does not work."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from statelab.models import decode_sequences, decode_steps, throughput, timing
from statelab.models.lineup import HYBRID, HYBRID_M2RNN, MODEL_NAMES
from statelab.models.speed_text import short
from statelab.models.throughput import Sizes, Speed, head, measured, plain, speeds_of, tail
from statelab.models.timing import Spread, captured, timed

CPU = torch.device("cpu")
SMALL = Sizes(lengths=(4, 8), tokens=16, arithmetic="float32", width=16, layers=2, seconds=0.02)


class Broken(nn.Module):
    """Fails at lengths above 4."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2] > 4:
            raise RuntimeError("cannot read more than 4 tokens\nand a second line")
        y: Tensor = self.linear(x)
        return y


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times as if every step took 10 ms."""
    monkeypatch.setattr(throughput, "timed", lambda *_: Spread(median=0.01, least=0.008, most=0.02, runs=3))


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_is_trained_and_timed(name: str, unhurried: None) -> None:
    sizes = replace(SMALL, lengths=(4,), tokens=8)
    ((speeds, text),) = measured(CPU, [name], sizes)
    (row,) = plain(speeds, sizes, CPU)
    assert (row["model"], row["length"], row["rows"], row["tokens"]) == (name, 4, 2, 8)
    assert (row["least"], row["tokens_per_second"], row["most"]) == (400, 800, 1000)
    assert row["note"] == ""
    assert row["made"] == "eager"
    assert row["parameters"] > 1000
    assert text.split() == [name, "800", "400–1.00k"]


def test_a_real_time_is_that_of_its_tokens() -> None:
    ((speeds, _),) = measured(CPU, ["rnn"], replace(SMALL, seconds=1))
    for speed in speeds:
        assert speed.tokens_per_second is not None
        assert speed.step_seconds is not None
        assert speed.least is not None
        assert speed.most is not None
        assert speed.steps > 1
        assert speed.tokens_per_second == pytest.approx(16 / speed.step_seconds)
        assert speed.least <= speed.tokens_per_second <= speed.most
    assert "2 layers of width 16, float32" in head(CPU, SMALL)


def test_a_model_that_fails_is_a_row_with_a_sentence(unhurried: None) -> None:
    ((speeds, text),) = measured(CPU, [f"{__name__}:Broken"], SMALL)
    assert speeds[0].tokens_per_second == 1600
    assert speeds[1].tokens_per_second is None
    assert speeds[1].note == "cannot read more than 4 tokens"
    assert "–" in text.splitlines()[0]
    assert "Broken at 8: cannot read more than 4 tokens" in tail(speeds)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), "out of memory"),
        (RuntimeError("CUDA error: an illegal memory access was encountered\nhints"),
         "CUDA error: an illegal memory access was encountered"),
        (ValueError(""), "ValueError"),
    ],
)  # fmt: skip
def test_whatever_goes_wrong_on_a_device_is_a_row(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: torch.device) -> None:
        raise error

    for module, measure, sizes in (
        (throughput, measured, SMALL),
        (decode_steps, decode_steps.measured_steps, decode_steps.STEP_DEFAULTS["cpu"]),
        (decode_sequences, decode_sequences.measured_sequences, decode_sequences.SEQUENCE_DEFAULTS["cpu"]),
    ):
        monkeypatch.setattr(module, "start_afresh", fail)
        ((found, text),) = measure(CPU, ["rnn"], sizes)  # type: ignore[arg-type]
        assert {row.note for row in found} == {told}
        assert "–" in text


def test_lengths_behind_one_that_takes_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.chain([0.01], itertools.repeat(0.5))

    def slower(*_: Any) -> Spread:
        seconds = next(times)
        return Spread(median=seconds, least=seconds, most=seconds, runs=1)

    monkeypatch.setattr(throughput, "timed", slower)
    speeds = speeds_of(CPU, "rnn", replace(SMALL, lengths=(16, 2, 4, 8)))
    assert [speed.length for speed in speeds] == [2, 4, 8, 16]
    assert [speed.tokens_per_second is None for speed in speeds] == [False, False, True, True]
    assert "rnn at 8, 16: left out, as a step at 4 took 0.5 s: allow more --seconds" in tail(speeds)


def test_the_cost_of_one_m2rnn_layer_is_told() -> None:
    def speed(model: str, length: int, tokens: float | None) -> Speed:
        return Speed(model=model, length=length, rows=1, tokens_per_second=tokens)

    told = tail(
        [
            speed(HYBRID, 4, 200),
            speed(HYBRID, 8, 100),
            speed(HYBRID_M2RNN, 4, 190),
            speed(HYBRID_M2RNN, 8, None),
        ]
    )
    assert told == "The hybrid with its first layer an M²RNN has 95.0% at 4 of the hybrid's tokens a second."


@pytest.mark.parametrize(
    ("changes", "names", "sentence"),
    [
        ({"arithmetic": "float16"}, None, "unknown arithmetic 'float16'; known: float32, tf32, bf16"),
        ({"arithmetic": "tf32"}, None, "tf32"),
        ({"lengths": (3, 4)}, None, "multiple of each length.*it is not of 3"),
        ({"layers": 0}, None, "must be >= 1"),
        ({"width": 100}, None, "is not a multiple|does not divide"),
        ({}, ["gru", "gruu"], "unknown mixer 'gruu'.*Did you mean 'gru'"),
        ({}, ["nowhere.at_all:Layer"], "cannot import"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_at_once(
    changes: dict[str, Any], names: list[str] | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        measured(CPU, names, replace(SMALL, **changes))


def test_short_calls_are_timed_in_groups_and_long_ones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def clock_at(each: float) -> list[int]:
        calls: list[int] = [0]

        def clock(work: Any, _: torch.device) -> float:
            before = calls[0]
            work()
            return each * (calls[0] - before)

        monkeypatch.setattr(timing, "clock", clock)
        return calls

    def work() -> None:
        calls[0] += 1

    calls = clock_at(1e-4)
    spread = timed(work, CPU, 0.1)
    assert (spread.median, spread.least, spread.most) == pytest.approx((1e-4,) * 3)
    assert spread.runs == 20
    assert calls[0] == 1 + 20 * 20
    calls = clock_at(0.03)
    assert timed(work, CPU, 0.1).runs == 3
    calls = clock_at(0.3)
    assert timed(work, CPU, 0.1).runs == 1
    assert calls[0] == 1


def test_without_a_card_nothing_is_captured() -> None:
    calls: list[int] = []
    replay = captured(lambda: calls.append(1), CPU)
    replay.run()
    assert (replay.made, replay.reason, len(calls)) == ("eager", "", 3)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0.0123, "0.012"), (1.234, "1.23"), (9.996, "10.0"), (99.97, "100"), (999.6, "1.00k"), (65_536, "65.5k"),
     (1_234_567, "1.23M"), (2.5e9, "2.50G")],
)  # fmt: skip
def test_three_digits(number: float, told: str) -> None:
    assert short(number) == told
