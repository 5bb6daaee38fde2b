"""Figures of speed: whole, told in words, with names that do not overlap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from statelab.analysis.draw_speed import sequence_figure, spread_apart, step_figure, throughput_figure
from tests.analysis.pixels import uncut

MODELS = [f"model_{number}_of_many" for number in range(12)]


def speeds(models: list[str], lengths: list[int], failed: tuple[str, ...] = ()) -> pd.DataFrame:
    rows = []
    for place, model in enumerate(models):
        for length in lengths:
            # All but equal at the last length, so that names must make room for each other.
            number = (
                None if model in failed else 1e6 * (1 + 0.01 * place) * (length / lengths[-1]) ** (place / 9)
            )
            rows.append({"model": model, "length": length, "tokens": 4096, "tokens_per_second": number,
                         "least": number and 0.9 * number, "most": number and 1.1 * number})  # fmt: skip
    return pd.DataFrame(rows)


def decodings(models: list[str], lengths: list[int]) -> pd.DataFrame:
    rows = []
    for place, model in enumerate(models):
        for length in lengths:
            row: dict[str, object] = {"model": model, "length": length, "estimated": place == 0}
            for what, seconds in (("prefill", 1e-5 * length), ("both", 1e-3 * length * (1 + place))):
                row |= {what: seconds, f"{what}_least": 0.9 * seconds, f"{what}_most": 2 * seconds}
            rows.append(row)
    return pd.DataFrame(rows)


def latencies(models: list[str]) -> pd.DataFrame:
    rows = [
        {"model": model, "arithmetic": arithmetic, "state": state, "seconds": 1e-5 * (place + 1),
         "least": 0.9e-5 * (place + 1), "most": 2e-5 * (place + 1)}
        for place, model in enumerate(models)
        for arithmetic in ("float32", "bf16")
        for state in ((64, 128) if place % 2 else (None,))
    ]  # fmt: skip
    return pd.DataFrame(rows)


FIGURES = {
    "throughput": lambda models, lengths: throughput_figure(speeds(models, lengths)),
    "sequences": lambda models, lengths: sequence_figure(decodings(models, lengths)),
    "steps": lambda models, lengths: step_figure(latencies(models)),
}


@pytest.mark.parametrize("models", [MODELS, MODELS[:1]], ids=["many", "one"])
@pytest.mark.parametrize("lengths", [[512, 1024, 16384], [64]], ids=["lengths", "one length"])
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_whole_and_told_in_words(name: str, lengths: list[int], models: list[str]) -> None:
    figure = FIGURES[name](models, lengths)
    assert uncut(figure)
    assert all(model in str(figure.get_label()) for model in models)
    assert plt.get_fignums() == []


def names_of(figure: Figure) -> list[Annotation]:
    return [text for axes in figure.axes for text in axes.texts if isinstance(text, Annotation)]


@pytest.mark.parametrize("draw", ["throughput", "sequences"])
def test_names_beside_lines_do_not_overlap(draw: str) -> None:
    figure = FIGURES[draw](MODELS, [512, 16384])
    figure.draw_without_rendering()
    for axes in figure.axes:
        # Of the words alone: an annotation's own box holds its line too.
        boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: float(box.y0))
        assert len(boxes) == len(MODELS)
        assert all(upper.y0 > lower.y1 - 2 for lower, upper in pairwise(boxes))
    assert len({text.get_text() for text in names_of(figure)}) == len(MODELS)


def test_what_was_not_measured_is_told() -> None:
    figure = throughput_figure(speeds(MODELS[:3], [8, 16], failed=(MODELS[1],)))
    assert [text.get_text() for text in names_of(figure)] == [MODELS[0], MODELS[2]]
    below = figure.get_supxlabel()
    assert f"not measured: {MODELS[1]}" in below
    assert "4,096 tokens a step" in below
    nothing = throughput_figure(speeds(MODELS[:2], [8, 16], failed=tuple(MODELS[:2])))
    assert uncut(nothing)
    assert "nothing was measured" in str(nothing.get_label())


def test_a_growing_state_s_times_are_told_to_be_sums() -> None:
    assert (
        f"writing by {MODELS[0]}: summed from steps"
        in sequence_figure(decodings(MODELS, [8])).get_supxlabel()
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.001, 0.05))
def test_names_keep_their_order_their_distance_and_the_panel(wanted: list[float], gap: float) -> None:
    places = spread_apart(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    ordered = np.asarray(places)[order]
    assert (np.diff(ordered) >= gap - 1e-9).all()
    assert ordered[0] >= -1e-9
    assert ordered[-1] <= 1 + 1e-9


def test_names_with_room_stay_where_they_are() -> None:
    assert spread_apart([0.9, 0.1, 0.5], 0.1) == pytest.approx([0.9, 0.1, 0.5])
    assert spread_apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread_apart([1.0, 1.0, 0.0], 0.1) == pytest.approx([0.9, 1.0, 0.0])
