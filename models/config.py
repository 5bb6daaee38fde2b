"""What a model is made of, as plain data: read, checked and counted without importing torch."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from statelab.models import MIXERS
from statelab.models.mixer import MixerConfig

MAX_WIDTH = 65_536
"""A bound that catches slips of the finger, far above what a laboratory trains."""


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """One layer: a mixer of the registry, or a user's own as "package.module:Class", and its options."""

    mixer: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A backbone: embedding, then for each layer norm, mixer, residual [norm, MLP, residual], norm, head."""

    layers: tuple[LayerConfig, ...]
    width: Annotated[int, "width D of the embedding and of every layer"] = 64
    norm: Annotated[Literal["layer", "rms"], "norm before each mixer and MLP and before the head"] = "layer"
    mlp: Annotated[float, "hidden width of the MLP after each mixer, in widths; 0 for none"] = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(f"width must lie in 1..{MAX_WIDTH}, got {self.width}")
        if not 0 <= self.mlp <= 64:
            raise ValueError(f"mlp is the MLP's hidden width in widths, 0 to 64, got {self.mlp}")

    def check(self) -> None:
        """Raise ValueError with a sentence if a layer cannot be built at this width."""
        for layer in self.layers:
            if is_own(layer.mixer):
                continue
            mixer_config(layer).check(self.width)


def mixer_config(layer: LayerConfig) -> MixerConfig:
    """The config of a layer of the registry.

    Raises ValueError for a name or an option that does not exist, with the known ones and the nearest,
    and for values that can never work.
    """
    if layer.mixer not in MIXERS:
        raise ValueError(f"unknown mixer {layer.mixer!r}; known: {_known(layer.mixer, MIXERS)}")
    made = config_class(layer.mixer)
    options = [option.name for option in fields(made)]
    for option in layer.options:
        if option not in options:
            raise ValueError(f"{layer.mixer}: unknown option {option!r}; known: {_known(option, options)}")
    return made(**layer.options)


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known word nearest to one that is unknown, or nothing."""
    found = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _known(word: str, words: Iterable[str]) -> str:
    hint = nearest(word, words)
    return ", ".join(words) + (f".{hint}" if hint else "")


def is_own(mixer: str) -> bool:
    """Whether a mixer's name is a user's "package.module:Class" rather than one of the registry."""
    return ":" in mixer


@cache
def config_class(mixer: str) -> type[MixerConfig]:
    """The config class of a registered mixer, without importing torch for it.

    A mixer's file holds its config and its layer, and a layer's base class is torch's. Reading a spec
    needs the config alone, so where torch is not loaded yet, only that class is taken from the file and
    executed. A contract test holds it equal to the imported one.
    """
    module_name, class_name = MIXERS[mixer].split(":")
    name = f"{class_name}Config"
    if "torch" in sys.modules:
        found = getattr(importlib.import_module(module_name), name)
    else:
        found = _execute_class(module_name, name)
    assert isinstance(found, type)
    assert issubclass(found, MixerConfig)
    return found


def _execute_class(module_name: str, name: str) -> object:
    spec = importlib.util.find_spec(module_name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    needed: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.ImportFrom) and node.module in _CONFIG_IMPORTS)
        or (isinstance(node, ast.ClassDef) and node.name == name)
    ]
    # A module of its own, since dataclasses and get_type_hints look names up where a class says it lives.
    module = ModuleType(f"{module_name}.config_only")
    sys.modules[module.__name__] = module
    exec(compile(ast.Module(needed, []), spec.origin, "exec"), module.__dict__)
    return module.__dict__[name]


_CONFIG_IMPORTS = {"__future__", "dataclasses", "typing", "statelab.models.mixer"}
