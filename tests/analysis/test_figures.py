from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from statelab.analysis.draw_lengths import length_figure
from statelab.analysis.draw_solved import solved_figure
from tests.analysis.frames import Accuracy, by_length, grid
from tests.analysis.pixels import drawn, uncut

MIXED: Accuracy = lambda task, model, rate, seed: [1.0, 0.95, 0.6, None][(seed + len(model)) % 4]  # noqa: E731


SHAPES: list[tuple[str, Sequence[str], Sequence[str], Sequence[float], int, Sequence[int], Accuracy]] = [
    ("one lane", ["p"], ["gru"], [1e-3], 1, [16], lambda *_: 0.95),
    ("all solved", ["p"], ["gru", "rnn"], [1e-3], 4, [16, 32], lambda *_: 1.0),
    ("two tasks", ["p", "q"], ["gru", "rnn", "mlstm", "mamba2"], [1e-3, 1e-2], 4, [16, 32, 256], MIXED),
    (
        "eight models",
        ["p"],
        [f"model {i} " + "long " * 8 for i in range(8)],
        [1e-3],
        3,
        [16, 20, 24, 999],
        MIXED,
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=[shape[0] for shape in SHAPES])
def test_figures_of_any_shape_are_drawn_whole(shape: tuple[object, ...]) -> None:
    _, tasks, models, rates, seeds, lengths, accuracy = shape
    lanes = grid(tasks, models, rates, seeds, accuracy)  # type: ignore[arg-type]
    assert uncut(solved_figure(lanes, chance={"p": 0.5}))
    assert uncut(length_figure(by_length(lanes, lengths), lanes, chance={"p": 0.5}))  # type: ignore[arg-type]


def test_all_diverged() -> None:
    lanes = grid(["p"], ["gru", "rnn"], [1e-3, 1e-2], 4, lambda *_: None)
    figure = solved_figure(lanes)
    assert uncut(figure)
    assert {text.get_text() for text in axes_of(figure)[0].texts} == {"0/4  ×4"}


def test_lengths_of_lanes_that_left_no_accuracy() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 2, lambda *_: 0.5)
    lengths = by_length(lanes, [16, 32]).assign(accuracy=None)
    figure = length_figure(lengths, lanes)
    assert uncut(figure)
    assert [text.get_text() for text in axes_of(figure)[0].texts] == ["no measurement"]


def axes_of(figure: Figure) -> list[Axes]:
    return [axes for panel in figure.subfigs for axes in panel.get_axes()]


def title(axes: Axes) -> str:
    return axes.get_title().replace("\N{NO-BREAK SPACE}", " ")


def lines_of(axes: Axes, width: float) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in axes.lines if line.get_linewidth() == width]


def test_length_figure_shows_every_seed_and_the_median() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 3, lambda task, model, rate, seed: [0.5, 0.9, 1.0][seed])
    (axes,) = axes_of(length_figure(by_length(lanes, [16, 64], decay=0.5), lanes))
    seeds = sorted(line[:, 1].tolist() for line in lines_of(axes, 0.7))
    assert seeds == [[0.5, 0.5], pytest.approx([0.9, 0.7]), [1.0, 0.75]]
    (median,) = lines_of(axes, 2.2)
    np.testing.assert_allclose(median, [[16, 0.9], [64, 0.7]])
    assert title(axes) == "gru\nrate 0.001, 3 seeds"
    assert axes.get_xscale() == "log"


def test_length_figure_of_another_value() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 2, lambda *_: 0.9)
    lengths = by_length(lanes, [16, 64]).assign(scaled_accuracy=0.75)
    (axes,) = axes_of(length_figure(lengths, lanes, chance={"p": 0.5}, value="scaled_accuracy"))
    (median,) = lines_of(axes, 2.2)
    assert median[:, 1].tolist() == [0.75, 0.75]
    assert axes.get_ylabel() == "scaled accuracy"
    assert not [line for line in axes.lines if line.get_linestyle() == ":"]


def test_a_facet_says_how_many_seeds_were_tested() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 4, MIXED)
    (axes,) = axes_of(length_figure(by_length(lanes, [16]), lanes))
    assert title(axes) == "gru\nrate 0.001, 3 of 4 seeds"


def test_the_vertical_line_is_at_the_training_length() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 2, lambda *_: 0.9).assign(length=40)
    (axes,) = axes_of(length_figure(by_length(lanes, [16, 64]), lanes))
    vertical = [line for line in lines_of(axes, 1.0) if (line[:, 0] == line[0, 0]).all()]
    assert [line[0, 0] for line in vertical] == [40]


def test_solved_figure_shows_every_seed_and_marks_the_chosen() -> None:
    lanes = grid(["p"], ["gru"], [1e-3, 1e-2], 3, lambda task, model, rate, seed: 1.0 if rate > 5e-3 else 0.5)
    left, right = axes_of(solved_figure(lanes))
    labels = {label.get_text(): label.get_fontweight() for label in left.get_yticklabels()}
    assert labels == {"gru  0.001": "normal", "gru  0.01": "bold"}
    points = [np.asarray(found.get_offsets()) for found in right.collections]
    assert sorted(x for of_rate in points for x in of_rate[:, 0]) == [0.5] * 3 + [1.0] * 3
    assert len({y for of_rate in points for y in of_rate[:, 1]}) == 6


def test_points_of_equal_lanes_do_not_depend_on_chance() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 5, lambda *_: 0.9)
    np.testing.assert_array_equal(drawn(solved_figure(lanes)), drawn(solved_figure(lanes)))


def test_a_setting_left_out_is_drawn() -> None:
    lanes = grid(["p"], ["gru"], [1e-3], 4, lambda *_: 0.9)
    lanes["clip"] = pd.Series([1.0, None, 1.0, None])
    left, _ = axes_of(solved_figure(lanes))
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "gru  0.001 clip=1",
        "gru  0.001 clip=none",
    ]


def test_dollars_in_names_are_dollars() -> None:
    lanes = grid(["p"], ["$a_", "b$c$", "$\\frac$"], [1e-3], 2, lambda *_: 0.9)
    left, _ = axes_of(solved_figure(lanes))
    assert [label.get_text().split()[0] for label in left.get_yticklabels()] == ["$a_", "b$c$", "$\\frac$"]
    assert uncut(solved_figure(lanes))
    assert uncut(length_figure(by_length(lanes, [16, 64]), lanes))


def test_nothing_of_pyplot_or_of_the_callers_style_changes() -> None:
    before = style()
    lanes = grid(["p"], ["gru"], [1e-3], 2, lambda *_: 0.9)
    solved_figure(lanes)
    length_figure(by_length(lanes, [16]), lanes)
    assert plt.get_fignums() == []
    assert style() == before


def style() -> dict[str, object]:
    """rcParams but for the backend, which reading resolves."""
    return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}


def test_models_keep_their_colour_in_every_task() -> None:
    lanes = grid(["p", "q"], ["a", "b"], [1e-3], 2, lambda *_: 0.9)
    lanes = lanes[(lanes["task"] == "p") | (lanes["model"] == "b")]
    of_p, _, of_q, _ = axes_of(solved_figure(lanes))
    assert of_p.lines[0].get_color() != of_q.lines[0].get_color()
    assert of_q.lines[0].get_color() in {line.get_color() for line in of_p.lines}
