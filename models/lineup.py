"""The models that speed benchmarks time beside each other, at laboratory size.

Heads are 64 wide and states have 64 channels in all of them, so that states are alike: 16k floats a layer at width
128 but for vector states and M²RNN's, which is the published 64 × 16 a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

import torch

from statelab.models import MIXERS
from statelab.models.arithmetic import check_arithmetic
from statelab.models.build import load_class
from statelab.models.config import LayerConfig, ModelConfig, is_own, nearest
from statelab.models.hybrids import every_nth, replace_first
from statelab.models.settings import Arithmetic

T = TypeVar("T")

HEAD, M2RNN_VALUE = 64, 16

HYBRID, HYBRID_M2RNN = "hybrid_gated_delta", "hybrid_gated_delta_m2rnn"

Options = dict[str, Any]


def _heads(width: int) -> Options:
    return {"heads": max(1, width // HEAD)}


def _states(width: int) -> Options:
    return {"d_state": HEAD, "head_dim": min(HEAD, width)}


_OPTIONS: dict[str, Callable[[int], Options]] = {
    "attention": _heads,
    "gated_delta": _heads,
    "gated_delta_product": _heads,
    "gru": _heads,
    "m2rnn": lambda width: {"heads": max(1, width // M2RNN_VALUE), "key_dim": HEAD},
    "mamba2": _states,
    "mamba3": _states,
    "mlstm": lambda width: {"heads": max(1, 2 * width // HEAD)},
    "rnn": _heads,
}
"""Options of a mixer at a width; one that is not named here has its defaults."""

_VARIANTS: dict[str, tuple[str, Options]] = {
    "mamba3_mimo": ("mamba3", {"rank": 4}),
    "mlstm_orthogonal": ("mlstm", {"read": "orthogonal"}),
}

_OF_STATE: dict[str, Callable[[int, int], Options]] = {
    "gated_delta": lambda width, state: {"head_dim": state, "heads": max(1, width // state)},
    "gated_delta_product": lambda width, state: {"head_dim": state, "heads": max(1, width // state)},
    "m2rnn": lambda width, state: {"key_dim": state},
    "mamba2": lambda width, state: {"d_state": state},
    "mamba3": lambda width, state: {"d_state": state},
    "mlstm": lambda width, state: {"heads": max(1, 2 * width // state)},
}
"""Options that give a mixer's states `state` channels (mLSTM: as many keys a head); the others have no such width."""

LAYER_NAMES: tuple[str, ...] = (*MIXERS, *_VARIANTS)
MODEL_NAMES: tuple[str, ...] = (*LAYER_NAMES, HYBRID, HYBRID_M2RNN)


def has_state_width(name: str) -> bool:
    """Whether a layer's states have a width that can be chosen."""
    return _VARIANTS.get(name, (name, {}))[0] in _OF_STATE


def layer_named(name: str, width: int, state: int | None = None) -> LayerConfig:
    """A layer of LAYER_NAMES, or a user's own, for a width; with `state` its state width, where it has one.

    Raises ValueError for a name that there is not.
    """
    if is_own(name):
        return LayerConfig(mixer=name)
    check_names([name], LAYER_NAMES)
    mixer, options = _VARIANTS.get(name, (name, {}))
    options = _OPTIONS[mixer](width) | options if mixer in _OPTIONS else options
    if state is not None and has_state_width(name):
        options = options | _OF_STATE[mixer](width, state)
    return LayerConfig(mixer=mixer, options=options)


def model_named(name: str, width: int, layers: int) -> ModelConfig:
    """A model of MODEL_NAMES, or of a user's own layer.

    The hybrid is Gated DeltaNet with attention, without positions, at every eighth layer (in the middle of fewer);
    `hybrid_gated_delta_m2rnn` has an M²RNN layer first, "M²RNN-1" of arXiv 2603.14360, section 5.1. Raises ValueError
    for a name that there is not and for a width that a layer cannot have.
    """
    if name in (HYBRID, HYBRID_M2RNN):
        delta, m2rnn, attention = (layer_named(one, width) for one in ("gated_delta", "m2rnn", "attention"))
        attention = LayerConfig(mixer="attention", options={**attention.options, "position": "none"})
        chosen = every_nth(attention, delta, layers, every=min(8, layers))
        chosen = replace_first(chosen, m2rnn) if name == HYBRID_M2RNN else chosen
    else:
        check_names([name], MODEL_NAMES)
        chosen = (layer_named(name, width),) * layers
    model = ModelConfig(layers=chosen, width=width)
    model.check()
    return model


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError for a name that is neither known nor that of a layer which can be imported."""
    for name in names:
        if is_own(name):
            load_class(name)
        elif name not in known:
            raise ValueError(
                f'unknown mixer {name!r}; known: {", ".join(known)}, or your own "package.module:Class".'
                f"{nearest(name, known)}"
            )


class Sizes(Protocol):
    """What whole models are measured at."""

    @property
    def arithmetic(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...


def model_by_model(
    device: torch.device, names: Sequence[str] | None, sizes: Sizes, measure: Callable[[str], T]
) -> Iterator[T]:
    """What `measure` makes of each of MODEL_NAMES, or of those named, as soon as it is made.

    Raises ValueError for what cannot be asked, at once.
    """
    check_names(names := MODEL_NAMES if names is None else names, MODEL_NAMES)
    check_arithmetic(cast(Arithmetic, sizes.arithmetic), device)
    for name in names:
        model_named(name, sizes.width, sizes.layers)
    return map(measure, names)
