"""Lists of layers for models of several mixers, as plain data: imports no torch.

Layers count from 0. The placements named here are those of arXiv 2603.14360, section 5.1, and its code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statelab.models.config import LayerConfig

MAX_LAYERS = 1024
"""A bound that catches slips of the finger, far above what a laboratory trains."""


def every_nth(
    layer: LayerConfig, among: LayerConfig, count: int, *, every: int = 8, first: int | None = None
) -> tuple[LayerConfig, ...]:
    """`count` layers, all `among` but for `layer` at `first`, `first` + `every`, …

    `first` None is every // 2, the published place: attention at 4, 12, 20 of 24 layers, and at five of 40.
    Raises ValueError for a place that does not exist.
    """
    first = every // 2 if first is None else first
    if every < 1 or not 0 <= first < count:
        raise ValueError(
            f"every_nth: every {every} must be >= 1 and first {first} one of the {count} layers, from 0"
        )
    places = range(first, count, every)
    return tuple(layer if place in places else among for place in range(count))


def replace_first(layers: Sequence[LayerConfig], by: LayerConfig) -> tuple[LayerConfig, ...]:
    """The layers with the first one replaced: "M²RNN-1", one M²RNN layer at place 0."""
    if not layers:
        raise ValueError("replace_first: there is no layer to replace")
    return (by, *layers[1:])


def replace_before(
    layers: Sequence[LayerConfig], by: LayerConfig, mixer: str = "attention"
) -> tuple[LayerConfig, ...]:
    """The layers with each one that stands right before a layer of `mixer` replaced.

    "M²RNN-3" and "M²RNN-5": places 3, 11, 19 where attention stands at 4, 12, 20. Raises ValueError if there is
    no such layer, or none before one, or if another of them stands there.
    """
    places = [place for place, layer in enumerate(layers) if layer.mixer == mixer]
    taken = [place for place in places if place == 0 or place - 1 in places]
    if not places or taken:
        found = f"{mixer} stands at {places}" if places else f"no layer is {mixer}"
        raise ValueError(f"replace_before: {found}; each needs a layer of another kind right before it")
    return tuple(by if place + 1 in places else layer for place, layer in enumerate(layers))


def unroll(entries: Iterable[Any]) -> list[Any]:
    """A spec's `layers` with repetitions written out.

    A table may carry `repeat = n` and stands n times, without the key; a table of nothing but `layers` and
    `repeat` is a pattern that stands n times:

        [{ mixer = "gated_delta", repeat = 7 }, "attention"]
        [{ repeat = 3, layers = ["m2rnn", { mixer = "gated_delta", repeat = 6 }, "attention"] }]

    Anything else is left as it is, for the spec's own checks. Raises ValueError for a `repeat` that is not a
    whole number of 1 or more, and for more than MAX_LAYERS layers.
    """
    written: list[Any] = []
    for entry in entries:
        written += _times(entry)
        if len(written) > MAX_LAYERS:
            raise ValueError(f"layers: more than {MAX_LAYERS} layers; use fewer")
    return written


def _times(entry: Any) -> list[Any]:
    if not isinstance(entry, Mapping):
        return [entry]
    repeat = entry.get("repeat", 1)
    if type(repeat) is not int or not 1 <= repeat <= MAX_LAYERS:
        raise ValueError(f"layers: repeat must be a whole number from 1 to {MAX_LAYERS}, got {repeat!r}")
    rest = {key: value for key, value in entry.items() if key != "repeat"}
    if rest.keys() == {"layers"} and isinstance(rest["layers"], list | tuple):
        return unroll(rest["layers"]) * repeat
    return [rest] * repeat
