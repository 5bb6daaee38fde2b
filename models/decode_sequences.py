"""How long a model takes to read L tokens and then to write L more: Table 7 of arXiv 2603.15569 (Mamba-3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from statelab.models.decoder import VOCABULARY, Decoder
from statelab.models.lineup import model_by_model, model_named
from statelab.models.speed_text import (
    block,
    cell_of,
    check_choices,
    error_cell,
    heading,
    remarks,
    short,
)
from statelab.models.streamer import TOLERANCE
from statelab.models.timing import Spread, noted, place_of, rows_of, sentence, start_afresh


@dataclass(frozen=True, kw_only=True)
class SequenceSizes:
    """What is read and written: each length by `batch` rows; about `seconds` go into one measurement."""

    lengths: tuple[int, ...]
    arithmetic: str
    width: int = 128
    layers: int = 8
    batch: int = 128
    seconds: float = 2.0

    def __post_init__(self) -> None:
        check_choices("arithmetic", [self.arithmetic], tuple(TOLERANCE))
        sizes = (*self.lengths, self.width, self.layers, self.batch)
        if not self.lengths or min(sizes) < 1 or not self.seconds > 0:
            raise ValueError("lengths (one at least), width, layers and batch must be >= 1 and seconds > 0")


SEQUENCE_DEFAULTS = {
    "cuda": SequenceSizes(lengths=(512, 1024, 2048), arithmetic="bf16"),
    "cpu": SequenceSizes(lengths=(16, 32), arithmetic="float32", width=64, layers=4, batch=4),
}
"""By the device's type."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Seconds to read `length` tokens (`prefill`) and to write as many behind them too (`both`), each with its least
    and most over `runs` of them; how far streamed logits are `off` those of the whole sequence.

    Where `estimated`, a state that grows keeps a step from being one graph for all contexts: steps are captured at
    three and their sum is Simpson's, exact for a time that grows up to cubically.
    """

    model: str
    length: int
    prefill: float | None = None
    prefill_least: float | None = None
    prefill_most: float | None = None
    prefill_runs: int = 0
    both: float | None = None
    both_least: float | None = None
    both_most: float | None = None
    both_runs: int = 0
    estimated: bool = False
    off: float | None = None
    made: str = ""
    note: str = ""


def sequence_head(device: torch.device, sizes: SequenceSizes) -> str:
    """What is measured, and the table's first line."""
    columns = [f"{what} {length:,}" for length in sorted(sizes.lengths) for what in ("read", "+ write")]
    return "\n".join(
        [
            f"L tokens read, and L more written, milliseconds: {sizes.layers} layers of width {sizes.width}, "
            f"{sizes.arithmetic}, batch {sizes.batch},",
            f"vocabulary {VOCABULARY}, greedy; {place_of(device)}",
            "Below the median least–most; ~: the state grows, so the sum of steps timed at three contexts",
            heading([*columns, "off"]),
        ]
    )


def measured_sequences(
    device: torch.device, names: Sequence[str] | None, sizes: SequenceSizes
) -> Iterator[tuple[list[Decoding], str]]:
    """Each model's measurements and its lines of the table, as soon as they are made.

    `names` None is all of MODEL_NAMES. Raises ValueError for what cannot be asked, at once; a model that fails is a
    row that says why.
    """

    def measure(name: str) -> tuple[list[Decoding], str]:
        found = decodings_of(device, name, sizes)
        return found, _lines(name, found)

    return model_by_model(device, names, sizes, measure)


def decodings_of(device: torch.device, name: str, sizes: SequenceSizes) -> list[Decoding]:
    """One model at each length. After a length that takes longer than `seconds`, longer ones are left out."""
    found: list[Decoding] = []
    for length in sorted(sizes.lengths):
        slow = [each for each in found if (each.both or 0) > sizes.seconds]
        if slow:
            note = f"left out, as {slow[0].length:,} tokens took {slow[0].both:.1f} s: allow more --seconds"
            found.append(Decoding(model=name, length=length, note=note))
        else:
            found.append(_decoding(device, name, length, sizes))
    return found


def _decoding(device: torch.device, name: str, length: int, sizes: SequenceSizes) -> Decoding:
    what: dict[str, Any] = {"model": name, "length": length}
    try:
        start_afresh(device)
        with noted() as notes:
            model = model_named(name, sizes.width, sizes.layers)
            decoder = Decoder(model, length, sizes.batch, sizes.arithmetic, device)
            error, prefill, both = decoder.off(), decoder.prefill(sizes.seconds), decoder.both(sizes.seconds)
    except Exception as failure:
        return Decoding(**what, note=sentence(failure))
    notes += decoder.reasons
    if not error <= TOLERANCE[sizes.arithmetic]:
        notes.append(f"streamed logits are {error:.1e} off, more than {TOLERANCE[sizes.arithmetic]:g}")
    what |= {"estimated": decoder.grows, "off": error, "made": decoder.made, "note": "; ".join(notes)}
    return Decoding(**what, **_named("prefill", prefill), **_named("both", both))


def _named(what: str, spread: Spread) -> dict[str, Any]:
    numbers = {"": spread.median, "_least": spread.least, "_most": spread.most, "_runs": spread.runs}
    return {f"{what}{name}": number for name, number in numbers.items()}


def sequence_tail(found: Iterable[Decoding]) -> str:
    """How steps were made, and what went wrong."""
    found = list(found)
    told = ((each.model, f"{each.length:,}", each.note) for each in found)
    return "\n".join(remarks((each.made for each in found), told))


def plain_sequences(
    found: Iterable[Decoding], sizes: SequenceSizes, device: torch.device
) -> list[dict[str, Any]]:
    """A tidy row for each measurement, with the sizes and the place at which it was made."""
    return rows_of(found, sizes, ("arithmetic", "width", "layers", "batch"), device)


def _lines(name: str, found: Sequence[Decoding]) -> str:
    cells = []
    for each in found:
        read = (each.prefill, each.prefill_least, each.prefill_most, each.prefill_runs)
        cells.append(cell_of(*read, _milliseconds))
        cell = cell_of(each.both, each.both_least, each.both_most, each.both_runs, _milliseconds)
        cells.append(cell._replace(median=f"~{cell.median}") if each.estimated else cell)
    errors = [each.off for each in found if each.off is not None]
    return block(name, [*cells, error_cell(errors)])


def _milliseconds(seconds: float) -> str:
    return short(1e3 * seconds)
