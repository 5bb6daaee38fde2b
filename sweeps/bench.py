"""Speed benchmarks to their end: lines as they are measured, tidy rows, a figure in three formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from statelab.models import decode_sequences, decode_steps, throughput
from statelab.models.lineup import HYBRID, HYBRID_M2RNN
from statelab.models.speed_text import check_choices
from statelab.sweeps.errors import UserError

PARTS = ("both", "steps", "sequences")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A benchmark: lines before and behind those of its measurements, its rows, and what draws them."""

    name: str
    figure: str
    head: str
    measured: Iterator[tuple[list[Any], str]]
    tail: Callable[[list[Any]], str]
    plain: Callable[[list[Any]], list[dict[str, Any]]]

    def lines(self, to: Path) -> Iterator[str]:
        """The table as it is made; NAME.csv in `to` has what is measured so far, and the figure comes at the end."""
        yield self.head
        found: list[Any] = []
        for some, text in self.measured:
            found += some
            # Each time, so that an end before the end leaves what there is.
            rows = pd.DataFrame(self.plain(found))
            _write(to, {f"{self.name}.csv": rows.to_csv(index=False).encode()})
            yield text
        yield self.tail(found)
        yield self._draw(rows, to)

    def _draw(self, rows: pd.DataFrame, to: Path) -> str:
        from statelab.analysis.drawing import FORMATS
        from statelab.analysis.pieces import Piece, drawn_by
        from statelab.analysis.studio import studio

        draw = drawn_by("draw_speed", self.figure, rows)
        with studio(FORMATS) as drawn:
            picture = drawn([Piece(name=self.name, title=self.name, about="", draw=draw)])[self.name]
        _write(to, {f"{self.name}.{kind}": picture.files[kind] for kind in FORMATS})
        return f"{to / self.name}.csv, {', '.join(f'.{kind}' for kind in FORMATS)}\n"


def bench_throughput(
    device: torch.device, names: Sequence[str] | None, changes: dict[str, Any], to: Path
) -> Iterator[str]:
    """Lines of the table of training speed; leaves throughput.csv and its figure in `to`.

    `changes` replace the device's usual sizes; None keeps them. Raises UserError for what cannot be asked.
    """
    try:
        sizes = _changed(throughput.DEFAULTS[device.type], changes)
        table = Table(
            name="throughput",
            figure="throughput_figure",
            head=throughput.head(device, sizes),
            measured=throughput.measured(device, names, sizes),
            tail=throughput.tail,
            plain=partial(throughput.plain, sizes=sizes, device=device),
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    _write(to, {})
    yield from table.lines(to)


def bench_decode(
    device: torch.device,
    names: Sequence[str] | None,
    changes: dict[str, Any],
    to: Path,
    *,
    part: str = "both",
    seconds: float | None = None,
) -> Iterator[str]:
    """Lines of the tables of steps and of sequences; leaves decode_steps and decode_sequences in `to`, as CSV and
    as figures.

    `changes` replace the device's usual sizes of whichever part has them; None keeps them. Sequences have the last
    of the arithmetics. `seconds` is the time for one measurement of a sequence; a step has an eighth of it. Raises
    UserError for what cannot be asked.
    """
    arithmetics = changes.get("arithmetics")
    of_steps = {**changes, "seconds": seconds and seconds / 8}
    of_sequences = {**changes, "seconds": seconds, "arithmetic": arithmetics[-1] if arithmetics else None}
    # A step is of one layer, so hybrids have sequences alone.
    layers = None if names is None else [name for name in names if name not in (HYBRID, HYBRID_M2RNN)]
    tables = []
    try:
        check_choices("part", [part], PARTS)
        if part == "steps" and layers == []:
            raise ValueError(
                f"{', '.join(names or ())}: only --part sequences times models of several kinds of layers"
            )
        if part != "sequences" and layers != []:
            tables.append(_steps(device, layers, _changed(decode_steps.STEP_DEFAULTS[device.type], of_steps)))
        if part != "steps":
            usual = decode_sequences.SEQUENCE_DEFAULTS[device.type]
            tables.append(_sequences(device, names, _changed(usual, of_sequences)))
    except ValueError as error:
        raise UserError(str(error)) from None
    _write(to, {})
    for table in tables:
        yield from table.lines(to)


def _steps(device: torch.device, layers: Sequence[str] | None, sizes: decode_steps.StepSizes) -> Table:
    return Table(
        name="decode_steps",
        figure="step_figure",
        head=decode_steps.step_head(device, sizes),
        measured=decode_steps.measured_steps(device, layers, sizes),
        tail=decode_steps.step_tail,
        plain=partial(decode_steps.plain_steps, sizes=sizes, device=device),
    )


def _sequences(
    device: torch.device, names: Sequence[str] | None, sizes: decode_sequences.SequenceSizes
) -> Table:
    return Table(
        name="decode_sequences",
        figure="sequence_figure",
        head=decode_sequences.sequence_head(device, sizes),
        measured=decode_sequences.measured_sequences(device, names, sizes),
        tail=decode_sequences.sequence_tail,
        plain=partial(decode_sequences.plain_sequences, sizes=sizes, device=device),
    )


def _changed(sizes: Any, changes: dict[str, Any]) -> Any:
    known = {name: value for name, value in changes.items() if value is not None and hasattr(sizes, name)}
    return replace(sizes, **known)


def _write(to: Path, files: dict[str, bytes]) -> None:
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (to / name).write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write into {to}: {error.strerror}; give another folder with --to") from None
