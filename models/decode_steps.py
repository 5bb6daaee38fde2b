"""How long one streaming step of a layer takes, by arithmetic and state width: Table 6 of arXiv 2603.15569 (Mamba-3).

There it is the kernel alone, for layers 2048 wide at batch 128; here a whole layer, at laboratory size. Legend: B rows,
T time, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import torch

from statelab.models.arithmetic import check_arithmetic
from statelab.models.build import build_mixer
from statelab.models.lineup import LAYER_NAMES, check_names, has_state_width, layer_named
from statelab.models.mixer import Mixer
from statelab.models.settings import Arithmetic
from statelab.models.speed_text import (
    Cell,
    block,
    cell_of,
    check_choices,
    error_cell,
    heading,
    remarks,
    short,
)
from statelab.models.streamer import TOLERANCE, Streamer, lighten, off, reading
from statelab.models.timing import Spread, noted, place_of, rows_of, sentence, start_afresh, timed

CHECKED = 16
"""Steps whose outputs are compared with those of the whole sequence."""


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """What is read: a step of `batch` rows behind `context` tokens, by a layer `width` wide."""

    arithmetics: tuple[str, ...] = ("float32", "bf16")
    states: tuple[int, ...] = (64, 128)
    width: int = 128
    batch: int = 128
    context: int = 1024
    seconds: float = 0.25

    def __post_init__(self) -> None:
        check_choices("arithmetic", self.arithmetics, tuple(TOLERANCE))
        if not self.arithmetics or not self.states:
            raise ValueError("steps need an arithmetic and a state width at least")
        if min((*self.states, self.width, self.batch, self.context)) < 1 or not self.seconds > 0:
            raise ValueError("states, width, batch and context must be >= 1 and seconds > 0")


STEP_DEFAULTS = {"cuda": StepSizes(), "cpu": StepSizes(batch=4, context=32)}
"""By the device's type."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds of one step, median, least and most over `runs` timings, and how far streamed outputs are `off` those
    of the whole sequence; `state` None where a layer has no such width."""

    model: str
    arithmetic: str
    state: int | None
    seconds: float | None = None
    least: float | None = None
    most: float | None = None
    runs: int = 0
    off: float | None = None
    state_size: int | None = None
    made: str = ""
    note: str = ""


def step_head(device: torch.device, sizes: StepSizes) -> str:
    """What is measured, and the table's first line."""
    columns = [f"{arithmetic} N{state}" for arithmetic, state in product(sizes.arithmetics, sizes.states)]
    return "\n".join(
        [
            f"One streaming step, microseconds: a layer of width {sizes.width}, {sizes.batch} rows behind "
            f"{sizes.context:,} tokens; {place_of(device)}",
            "Below the median least–most; N channels of state, layers without such a width stand under the first;",
            "off: largest difference from the whole sequence read at once, in units of its largest output",
            heading([*columns, *(f"off {arithmetic}" for arithmetic in sizes.arithmetics)]),
        ]
    )


def measured_steps(
    device: torch.device, names: Sequence[str] | None, sizes: StepSizes
) -> Iterator[tuple[list[Latency], str]]:
    """Each layer's measurements and its lines of the table, as soon as they are made.

    `names` None is all of LAYER_NAMES. Raises ValueError for what cannot be asked, at once; a layer that fails is a
    row that says why.
    """
    check_names(names := LAYER_NAMES if names is None else names, LAYER_NAMES)
    for arithmetic in sizes.arithmetics:
        check_arithmetic(cast(Arithmetic, arithmetic), device)

    def each() -> Iterator[tuple[list[Latency], str]]:
        for name in names:
            states = sizes.states if has_state_width(name) else (None,)
            found = [
                _latency(device, name, *setting, sizes) for setting in product(sizes.arithmetics, states)
            ]
            yield found, _lines(name, found, sizes)

    return each()


def _latency(
    device: torch.device, name: str, arithmetic: str, state: int | None, sizes: StepSizes
) -> Latency:
    what: dict[str, Any] = {"model": name, "arithmetic": arithmetic, "state": state}
    try:
        start_afresh(device)
        with noted() as notes:
            spread, error, streamer, size = _measure(device, name, arithmetic, state, sizes)
    except Exception as failure:
        return Latency(**what, note=sentence(failure))
    notes += [streamer.make.reason] if streamer.make.reason else []
    if not error <= TOLERANCE[arithmetic]:
        notes.append(f"streamed outputs are {error:.1e} off, more than {TOLERANCE[arithmetic]:g}")
    what |= {"seconds": spread.median, "least": spread.least, "most": spread.most, "runs": spread.runs}
    what |= {"off": error, "state_size": size, "made": streamer.make.made, "note": "; ".join(notes)}
    return Latency(**what)


def _measure(
    device: torch.device, name: str, arithmetic: str, state: int | None, sizes: StepSizes
) -> tuple[Spread, float, Streamer, int | None]:
    torch.manual_seed(0)
    layer = build_mixer(layer_named(name, sizes.width, state), sizes.width).to(device)
    lighten(layer, arithmetic)
    x_BTD = torch.randn(sizes.batch, sizes.context + CHECKED, sizes.width, device=device)
    before_BTD, after_BTD = x_BTD.split((sizes.context, CHECKED), dim=1)
    with reading(arithmetic, device):
        whole_BTD = layer(x_BTD)[0][:, sizes.context :].clone()
        _, past = layer(before_BTD)
    streamer = Streamer(layer, after_BTD[:, :1], past, arithmetic)
    streamed_BTD = streamer.read_all(after_BTD, past)
    error = off(streamed_BTD, whole_BTD[:, : streamed_BTD.shape[1]])
    return timed(streamer.make.run, device, sizes.seconds), error, streamer, cast(Mixer, layer).state_size


def step_tail(found: Iterable[Latency]) -> str:
    """How steps were made, and what went wrong."""
    found = list(found)
    told = ((each.model, _column(each), each.note) for each in found)
    return "\n".join(remarks((each.made for each in found), told))


def plain_steps(found: Iterable[Latency], sizes: StepSizes, device: torch.device) -> list[dict[str, Any]]:
    """A tidy row for each measurement, with the sizes and the place at which it was made."""
    return rows_of(found, sizes, ("width", "batch", "context"), device)


def _lines(name: str, found: Sequence[Latency], sizes: StepSizes) -> str:
    of = {(each.arithmetic, each.state or sizes.states[0]): each for each in found}
    cells = []
    for setting in product(sizes.arithmetics, sizes.states):
        each = of.get(setting)
        cells.append(Cell("", "") if each is None else _cell(each))
    worst = [
        [each.off for each in found if each.arithmetic == arithmetic and each.off is not None]
        for arithmetic in sizes.arithmetics
    ]
    return block(name, [*cells, *(error_cell(errors) for errors in worst)])


def _cell(each: Latency) -> Cell:
    return cell_of(each.seconds, each.least, each.most, each.runs, lambda seconds: short(1e6 * seconds))


def _column(each: Latency) -> str:
    return each.arithmetic if each.state is None else f"{each.arithmetic} N{each.state}"
