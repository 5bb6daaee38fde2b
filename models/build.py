"""From a layer's name and options to the layer. Legend: B rows, T time, D width."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from torch import Tensor, nn

from statelab.models import MIXERS
from statelab.models.config import LayerConfig, is_own, mixer_config
from statelab.models.mixer import State


def build_mixer(layer: LayerConfig, width: int, blocks: int = 1) -> nn.Module:
    """The layer for `[B, T, width]`, one of `blocks` in the model, called as `models.mixer.Mixer`.

    Raises ValueError with a sentence for an unknown mixer or option, for a width that the mixer cannot
    have, and for a user's own layer that cannot be imported or constructed.
    """
    if is_own(layer.mixer):
        return OwnMixer(layer, width)
    config = mixer_config(layer)
    config.check(width)
    built: nn.Module = load_class(MIXERS[layer.mixer])(config, width, blocks)
    return built


def load_class(target: str) -> type[nn.Module]:
    """The class named "package.module:Class". Raises ValueError if there is no such class."""
    module_name, _, class_name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except ImportError as error:
        raise ValueError(
            f"mixer {target!r}: cannot import {module_name!r} ({error}); run from the folder that holds it, "
            "or install it"
        ) from error
    except AttributeError:
        raise ValueError(f"mixer {target!r}: module {module_name!r} has no {class_name!r}") from None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ValueError(f"mixer {target!r} must be a class of torch.nn.Module, got {found!r}")
    return found


class OwnMixer(nn.Module):
    """A user's layer made a mixer: built as `Class(width, **options)`, called as `layer(x)` or `layer(x,
    state)`.

    Only `layer(x)` is needed. A layer that returns (y, state) and takes a second argument may also be read in
    pieces; any other refuses a state.
    """

    def __init__(self, layer: LayerConfig, width: int) -> None:
        super().__init__()
        self.name = layer.mixer
        made = load_class(layer.mixer)
        try:
            inspect.signature(made).bind(width, **layer.options)
        except TypeError as error:
            takes = ", ".join(list(inspect.signature(made).parameters)[1:]) or "none"
            raise ValueError(
                f"mixer {self.name!r}: called with width {width} and {dict(layer.options)}: {error}; "
                f"its options: {takes}"
            ) from None
        self.layer = made(width, **layer.options)
        self.carries = len(inspect.signature(self.layer.forward).parameters) > 1

    @property
    def state_size(self) -> int | None:
        """The layer's own `state_size`; None where it has none."""
        return getattr(self.layer, "state_size", None)

    def forward(self, x_BTD: Tensor, state: State = None) -> tuple[Tensor, State]:
        if state is not None and (not self.carries or state == ()):
            raise ValueError(
                f"mixer {self.name!r} reads whole sequences; to read in pieces it needs forward(x, state)"
            )
        answer: Any = self.layer(x_BTD, state) if self.carries else self.layer(x_BTD)
        y_BTD, state = answer if isinstance(answer, tuple) else (answer, ())
        if y_BTD.shape != x_BTD.shape:
            raise ValueError(
                f"mixer {self.name!r}: output must be [B, T, D] = {list(x_BTD.shape)}, "
                f"got {list(y_BTD.shape)}"
            )
        return y_BTD, () if state is None else state
