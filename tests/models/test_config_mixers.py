"""Mixers' configs: read, checked and described without torch, and the same as when it is there."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from statelab.models import MIXERS
from statelab.models.config import LayerConfig, ModelConfig, config_class, mixer_config
from statelab.models.describe import describe_mixers
from statelab.models.mixer import MixerConfig

ROOT = Path(__file__).parents[2]
READ_ALL = """
import json, sys
from tests.models.test_config_mixers import shown
from statelab.models import MIXERS
from statelab.models.config import LayerConfig, ModelConfig, config_class
from statelab.models.describe import describe_mixers
assert config_class("gru")(heads=2).check(8) is None
ModelConfig(layers=(LayerConfig(mixer="mlstm"), LayerConfig(mixer="a.b:C")), width=8).check()
answer = [{name: shown(config_class(name)) for name in MIXERS}, repr(describe_mixers())]
assert "torch" not in sys.modules
print(json.dumps(answer))
"""


def shown(made: type[MixerConfig]) -> list[list[str]]:
    return [[field.name, repr(field.type), repr(field.default)] for field in fields(made)]


def test_configs_are_read_without_torch_and_equal_the_imported() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", READ_ALL], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    read, described = json.loads(answer.stdout)
    for name, target in MIXERS.items():
        module_name, class_name = target.split(":")
        imported = getattr(importlib.import_module(module_name), f"{class_name}Config")
        assert read[name] == shown(imported)
        assert inspect.getdoc(imported) == inspect.getdoc(config_class(name))
    assert described == repr(describe_mixers())


def test_every_mixer_says_what_it_is_and_where_from() -> None:
    for each in describe_mixers():
        assert each.summary.endswith("."), each.name
        assert "arXiv" in each.source, each.name
        assert all(option.help for option in each.options), each.name
    assert [each.name for each in describe_mixers()] == sorted(MIXERS)


def test_a_choice_is_shown_with_its_values() -> None:
    (mlstm,) = (each for each in describe_mixers() if each.name == "mlstm")
    (read,) = (option for option in mlstm.options if option.name == "read")
    assert (read.kind, read.default) == ("'plain' | 'orthogonal' | 'rls'", "plain")


@pytest.mark.parametrize(
    ("mixer", "options", "message"),
    [
        ("gru", {"heads": 0}, "heads 0 must be >= 1"),
        ("gru", {"conv": 1}, "conv 1 must be 0"),
        ("gru", {"init_std": -1.0}, "init_std -1.0 and gradient_clip 1.0 must be >= 0"),
        ("gru", {"gradient_clip": -1.0}, "gradient_clip -1.0 must be >= 0"),
        ("rnn", {"head_dim": -1}, "head_dim -1 >= 0"),
        ("rnn", {"conv": 1}, "conv 1 must be 0"),
        ("rnn", {"gradient_clip": -1.0}, "gradient_clip -1.0 must be >= 0"),
        ("m2rnn", {"key_dim": 0}, "key_dim 0 must be >= 1"),
        ("m2rnn", {"qk_heads": 3}, "qk_heads 3 must divide heads 4"),
        ("m2rnn", {"conv": 1}, "conv 1 must be 0"),
        ("m2rnn", {"gradient_clip": -1.0}, "gradient_clip -1.0 must be >= 0"),
        ("attention", {"heads": 0}, "heads 0 must be >= 1"),
        ("attention", {"rope_base": 1.0}, "rope_base 1.0 must be > 1"),
        ("attention", {"conv": 1}, "conv 1 must be 0"),
        ("gated_delta_product", {"n_h": 0}, "n_h 0 and heads 2 must be >= 1"),
        ("gated_delta_product", {"conv": 1}, "conv 1 must be 0"),
        ("gated_delta", {"expand_v": 0.0}, "expand_v 0.0 > 0"),
        ("gated_delta", {"conv": -1}, "conv -1 must be 0"),
        ("mamba2", {"d_state": 0}, "d_state 0 and groups 1 must be >= 1"),
        ("mamba2", {"conv": 1}, "conv 1 must be >= 2 taps"),
        ("mamba3", {"rank": 0}, "rank 0 must be >= 1"),
        ("mamba3", {"conv": 1}, "conv 1 must be 0"),
        ("mamba3", {"heads": -1}, "heads -1 must be >= 0"),
        ("mamba3", {"rope_fraction": 1.5}, r"rope_fraction 1.5 must lie in \(0, 1\]"),
        ("mamba3", {"d_state": 3}, "0.5 of d_state 3 channels leaves no pair to turn"),
        ("mamba3", {"step_min": 0.2}, "needs 0 < step_min <= step_max, got 0.2, 0.1"),
        ("mamba3", {"decay_floor": -1.0}, "decay_floor -1.0 must be >= 0"),
        ("mlstm", {"blend": 1.5}, "blend 1.5 must lie in 0..1"),
        ("mlstm", {"ridge": 0.0}, "ridge 0.0 must be > 0"),
        ("mlstm", {"iterations": -1}, "iterations -1 must be >= 0"),
        ("mlstm", {"qkv_block": 0}, "qkv_block 0 must be >= 1"),
        ("mlstm", {"conv": 1}, "conv 1 must be 0"),
    ],
)
def test_values_that_never_work_are_refused(mixer: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixer_config(LayerConfig(mixer=mixer, options=options))


@pytest.mark.parametrize(
    ("mixer", "options", "message"),
    [
        ("gru", {"heads": 3}, "width 10 is not a multiple of 3 heads"),
        ("rnn", {"heads": 3}, "width 10 is not a multiple of 3 heads"),
        ("m2rnn", {}, "width 10 is not a multiple of 4 heads; set value_dim"),
        ("attention", {}, "width 10 is not a multiple of 4 heads; set head_dim"),
        ("attention", {"heads": 2}, "head_dim 5 must be even; or use position = 'none'"),
        ("gated_delta_product", {"heads": 3}, "width 10 is not a multiple of 3 heads"),
        ("gated_delta_product", {"expand_v": 1.5}, "expand_v 1.5 times key width 5 must be whole, got 7.5"),
        ("gated_delta", {"heads": 4}, "width 10 is not a multiple of 4 heads"),
        ("gated_delta", {"expand_v": 1.5}, r"expand_v 1.5 times key width 5 must be whole, got 7.5"),
        (
            "mamba2",
            {"head_dim": 8},
            r"head_dim 8 does not divide the inner width expand \* width = 2 \* 10 = 20",
        ),
        ("mamba2", {"head_dim": 4, "groups": 2}, r"5 heads \(inner width 20 / head_dim 4\) cannot be split"),
        ("mamba3", {"head_dim": 8}, "head_dim 8 does not divide the inner width"),
        ("mamba3", {"heads": 8}, "heads 8 does not divide the inner width"),
        ("mamba3", {"heads": 5, "groups": 2}, "5 heads cannot be split evenly over 2 groups"),
        ("mlstm", {"block": "plain"}, "heads 4 must divide the plain block's width 10"),
        ("mlstm", {"heads": 3}, "heads 3 must divide the inner width 64"),
        ("mlstm", {"qkv_block": 5}, "qkv_block 5 must divide the inner width 64"),
    ],
)
def test_a_width_that_does_not_fit_is_refused(mixer: str, options: dict[str, Any], message: str) -> None:
    model = ModelConfig(layers=(LayerConfig(mixer=mixer, options=options),), width=10)
    with pytest.raises(ValueError, match=message):
        model.check()
