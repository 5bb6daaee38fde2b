"""The figures beside the first two: drawn whole from any study, with every seed in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from statelab.analysis.differences import paired_differences
from statelab.analysis.draw_capacity import capacity_figure
from statelab.analysis.draw_curves import curve_figure
from statelab.analysis.draw_differences import difference_figure
from statelab.analysis.draw_metrics import metric_figure, range_figure
from statelab.analysis.draw_published import published_figure
from statelab.analysis.draw_rates import rate_figure
from statelab.analysis.draw_solved import success_map
from statelab.analysis.draw_time import draw_time_panel, threshold_figure, time_figure
from statelab.analysis.escape import escape_times, survival_curves
from statelab.analysis.published import PUBLISHED_COLUMNS, compare_published
from statelab.analysis.solved import choose_rates
from statelab.analysis.style import looks_of, short_number
from tests.analysis.frames import Accuracy, by_length, curves_of, grid
from tests.analysis.pixels import uncut

LONG = "a model whose name tells its width, its depth and its initial values"
MIXED: Accuracy = lambda task, model, rate, seed: [0.97, 0.92, 0.6, None][(seed + len(model)) % 4]  # noqa: E731


class Made(NamedTuple):
    """A made-up study, its tests at two lengths, and the chosen rates."""

    lanes: pd.DataFrame
    lengths: pd.DataFrame
    chosen: pd.DataFrame

    @property
    def metrics(self) -> pd.DataFrame:
        rows = self.lengths.drop(columns=["accuracy", "scaled_accuracy", "loss"])
        parts = [rows.assign(metric="per_position", index=i, value=1 - i / 9) for i in range(5)]
        return pd.concat([*parts, rows.assign(metric="exact_answers", index=0, value=0.5)])


def made(shape: str) -> Made:
    if shape == "one lane":
        lanes = grid(["p"], ["gru"], [1e-3], 1, lambda *_: 0.95)
    elif shape == "all solved":
        lanes = grid(["p"], ["gru", "rnn"], [1e-3, 1e-2], 4, lambda *_: 1.0)
    else:
        lanes = grid(
            ["p", "a task with a long name " * 2], ["gru", LONG, "rnn"], [1e-4, 1e-3, 1e-2], 4, MIXED
        )
        # One model was never run on the second task.
        lanes = lanes[(lanes["task"] == "p") | (lanes["model"] != "rnn")]
    return Made(lanes, by_length(lanes, [16, 64]), choose_rates(lanes))


def published(found: Made) -> Figure:
    row = {"task": "p", "model": "gru", "measure": "accuracy", "length": np.nan, "mean": 0.875}
    both = [row | {"half_width": 0.12, "solved": 20, "n": 24}, row | {"length": 64, "model": "rnn"}]
    theirs = pd.DataFrame(both, columns=pd.Index(PUBLISHED_COLUMNS))
    compared = compare_published(theirs, found.lanes, found.lengths, found.chosen)
    return published_figure(compared, found.lanes, found.lengths, found.chosen)


FIGURES: dict[str, Callable[[Made], Figure]] = {
    "success": lambda x: success_map(x.lanes, x.chosen),
    "time": lambda x: time_figure(escape_times(x.lanes), x.chosen),
    "thresholds": lambda x: threshold_figure(x.lanes, x.chosen),
    "rates": lambda x: rate_figure(x.lanes),
    "capacity": lambda x: capacity_figure(x.lanes, x.chosen),
    "curves": lambda x: curve_figure(curves_of(x.lanes), x.lanes, x.chosen),
    "metrics": lambda x: metric_figure(x.metrics, x.lanes, x.chosen),
    "ranges": lambda x: range_figure(x.lengths.assign(shortest=4), x.lanes, x.chosen),
    "published": published,
    "differences": lambda x: difference_figure(paired_differences(x.lanes, x.chosen), x.lanes, x.chosen),
}


@pytest.mark.parametrize("shape", ["mixed", "one lane", "all solved"])
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_whole_and_told_in_words(name: str, shape: str) -> None:
    found = made(shape)
    if name == "differences" and shape == "one lane":
        pytest.skip("one model has no difference")
    figure = FIGURES[name](found)
    assert uncut(figure)
    assert len(str(figure.get_label())) > 30
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", ["success", "time", "thresholds", "rates", "capacity"])
def test_all_diverged(name: str) -> None:
    lanes = grid(["p"], ["gru", "rnn"], [1e-3, 1e-2], 4, lambda *_: None)
    assert uncut(FIGURES[name](Made(lanes, by_length(lanes, []), choose_rates(lanes))))


def test_the_map_says_what_was_not_run() -> None:
    (axes,) = success_map(made("mixed").lanes, made("mixed").chosen).axes
    words = [text.get_text() for text in axes.texts]
    assert words.count("none") == 1
    assert len([word for word in words if "/4" in word]) == 5


def test_every_lane_is_in_the_figure_of_times() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 7, lambda task, model, rate, seed: [0.95, 0.5, None][seed % 3])
    times, chosen = escape_times(lanes), choose_rates(lanes)
    axes = Figure().subplots()
    draw_time_panel(axes, times, survival_curves(times, chosen), looks_of(["gru"]))
    marks = [(str(line.get_marker()), len(np.asarray(line.get_xdata()))) for line in axes.lines]
    shown = {marker: count for marker, count in marks if marker in "|>x"}
    assert shown == {"|": 3, ">": 2, "x": 2}
    steps = next(line for line in axes.lines if line.get_drawstyle() == "steps-post")
    assert np.asarray(steps.get_ydata()).tolist() == pytest.approx([0, 3 / 7, 3 / 7])


def test_a_choice_at_the_edge_is_marked() -> None:
    best = {"low": 1e-4, "inner": 1e-3, "high": 1e-2}
    lanes = grid(
        ["p"], list(best), [1e-4, 1e-3, 1e-2], 2, lambda task, model, rate, seed: float(rate == best[model])
    )
    figure = rate_figure(lanes)
    marks = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert marks == ["◂", "▸"]
    assert "low on p 0.0001 (the lowest tried)" in str(figure.get_label())


def test_escapes_are_marked_on_the_curves() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 3, lambda task, model, rate, seed: [0.95, 0.97, 0.5][seed])
    loss, accuracy = curve_figure(curves_of(lanes), lanes, choose_rates(lanes)).axes
    for axes, heights in ((loss, [0.03, 0.05]), (accuracy, [0.95, 0.97])):
        (marked,) = [line for line in axes.lines if line.get_marker() == "^"]
        assert np.asarray(marked.get_xdata()).tolist() == [300, 300]
        assert sorted(np.asarray(marked.get_ydata())) == pytest.approx(heights)
        assert len(axes.collections[0].get_paths()) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(512, "512"), (1024, "1k"), (65536, "64k"), (1 << 20, "1M"), (2000, "2k"), (0.5, "0.5")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short_number(value) == text
