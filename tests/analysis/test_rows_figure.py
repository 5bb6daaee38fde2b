"""Pictures of rows: every task's are drawn whole, and say what is scored."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from PIL import Image

from statelab.analysis.rows_figure import colours_of_tokens, rows_figure, write_rows
from statelab.analysis.rows_lines import checked, laid_out
from statelab.tasks.rows import Rows
from tests.tasks.cases import CASES, Case

KINDS = {"pad": range(1), "bit": range(1, 3)}


def drawn(figure: Figure) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=60)
    pixels: np.ndarray = np.asarray(Image.open(buffer).convert("L"))
    return pixels


def uncut(figure: Figure) -> bool:
    """Text cut at the border shows as ink there."""
    pixels = drawn(figure)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return bool((border > 250).all()) and bool((pixels < 128).any())


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def frames(figure: Figure) -> int:
    found = figure.axes[0].collections[-1]
    assert isinstance(found, PatchCollection)
    return len(found.get_paths())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_tasks_rows_are_drawn_whole(case: Case) -> None:
    batch = case.task.sample(Rows.span([0], "train", 0, 2), case.length)
    inputs, targets = batch.inputs[0].numpy(), batch.targets[0].numpy()
    figure = rows_figure(inputs, targets, case.task.kinds, str(case), case.task.describe)
    assert uncut(figure)
    scored = targets >= 0
    assert frames(figure) == scored.sum()
    if inputs.shape[1] <= 48:
        expected = [*inputs.flatten().tolist(), *targets[scored].tolist()]
        assert sorted(words(figure)) == sorted(map(case.task.describe, expected))
    else:
        assert not words(figure)


def test_nested_lists_are_drawn_as_arrays_are() -> None:
    inputs, targets = [[1, 2, 0], [2, 2, 1]], [[-100, 2, -100], [-100, -100, 1]]
    listed = rows_figure(inputs, targets, KINDS, "two rows")
    np.testing.assert_array_equal(
        drawn(listed), drawn(rows_figure(np.array(inputs), np.array(targets), KINDS, "two rows"))
    )
    assert words(listed) == ["1", "2", "0", "2", "2", "2", "1", "1"]


def test_an_answer_stands_beneath_its_question() -> None:
    figure = rows_figure([[1, 2, 0]], [[-100, 1, -100]], KINDS, "one row", "_01".__getitem__)
    places = {
        (text.get_text(), text.get_position()[0]): text.get_position()[1] for text in figure.axes[0].texts
    }
    assert places["0", 1] > places["1", 1]
    axes = figure.axes[0]
    assert axes.yaxis_inverted()


@pytest.mark.parametrize(("T", "sizes"), [(48, [48]), (49, [49]), (65, [33, 32]), (256, [64] * 4)])
def test_long_rows_are_folded_into_like_pieces(T: int, sizes: list[int]) -> None:
    ids = np.arange(3 * T).reshape(3, T)
    layout = laid_out(ids, np.full_like(ids, -100), 1 if T <= 48 else None)
    assert [len(line.inputs) for line in layout.lines] == sizes * 3
    assert np.concatenate([line.inputs for line in layout.lines]).tolist() == list(range(3 * T))
    tops = [line.top for line in layout.lines]
    gaps = np.diff([*tops, layout.height + 0.5])
    assert (gaps > 1 + layout.beneath).all()


def test_long_words_get_wider_cells_and_shorter_lines() -> None:
    ids = np.zeros((1, 40), dtype=np.int64)
    short, long = laid_out(ids, ids, 2), laid_out(ids, ids, 8)
    assert (len(short.lines), len(long.lines)) == (1, 2)
    assert long.cell > short.cell


def test_colours_tell_kinds_and_ids_apart() -> None:
    kinds = {str(i): range(3 * i, 3 * i + 3) for i in range(9)} | {
        "noise": range(27, 30),
        "pad": range(30, 31),
    }
    colours = colours_of_tokens(kinds)
    assert len(set(colours)) == len(colours) == 31
    assert all(len(set(colour)) == 1 for colour in colours[27:])
    assert sum(colours[0]) > sum(colours[2])


def test_the_picture_in_words_is_in_the_file(tmp_path: Path) -> None:
    figure = rows_figure([[1, 2, 2, 0]], [[-100, -100, 1, -100]], KINDS, "parity")
    sentence = (
        "parity: 1 row of 4 tokens as cells coloured by kind (1 pad, 3 bit); 1 of 4 positions are scored and "
        "framed, with their answers beneath."
    )
    assert figure.get_label() == sentence
    write_rows(figure, tmp_path / "rows.png")
    with Image.open(tmp_path / "rows.png") as image:
        assert image.info["Description"] == sentence
    write_rows(figure, tmp_path / "rows.svg")
    assert sentence in (tmp_path / "rows.svg").read_text(encoding="utf-8")


def test_the_callers_style_stays() -> None:
    before = dict(rcParams)
    rows_figure([[1]], [[2]], KINDS, "one token")
    assert dict(rcParams) == before


@pytest.mark.parametrize(
    ("inputs", "targets", "sentence"),
    [
        ([[1, 2]], [[1]], r"must both be \[rows, T\], got \[1, 2\] and \[1, 1\]"),
        ([1, 2], [1, 2], r"got \[2\] and \[2\]"),
        ([[]], [[]], r"got \[1, 0\]"),
        ([[1, 3]], [[-100, 1]], "tokens 1 … 3 are shown, and kinds are of 0 … 2"),
        ([[1, 1]], [[-100, 7]], "tokens 1 … 7"),
        ([[-1, 1]], [[1, 1]], "tokens -1 … 1"),
    ],
)
def test_rows_that_cannot_be_drawn(inputs: list[list[int]], targets: list[list[int]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked(inputs, targets, KINDS)
