"""What CONTRIBUTING says of adding a mixer: one file, one line, and it trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from statelab.models import MIXERS
from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig, config_class
from statelab.models.learner import Learner
from tests.models.training import EVALUATION, TASK, TRAINING, lanes_of, train

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def leaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "leaky_of_contributing.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(MIXERS, "leaky", "leaky_of_contributing:Leaky")
    config_class.cache_clear()
    return ModelConfig(layers=(LayerConfig(mixer="leaky", options={"start": 0.8}),), width=8)


def test_the_mixer_of_contributing_trains_as_a_population(leaky: ModelConfig) -> None:
    lanes = lanes_of(3)
    together = train(Learner(TASK, leaky, lanes, TRAINING, EVALUATION), 0, 10)
    alone = train(Learner(TASK, leaky, lanes[1:2], TRAINING, EVALUATION), 0, 10)
    torch.testing.assert_close(together[:, 1], alone[:, 0], rtol=0, atol=1e-10)


def test_it_may_be_read_in_pieces(leaky: ModelConfig) -> None:
    model = Backbone(leaky, 5).double()
    tokens = torch.randint(5, (2, 9))
    whole, _ = model(tokens)
    first, state = model(tokens[:, :4])
    second, _ = model(tokens[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)


def test_its_options_are_checked(leaky: ModelConfig) -> None:
    wrong = ModelConfig(layers=(LayerConfig(mixer="leaky", options={"start": 2.0}),), width=8)
    with pytest.raises(ValueError, match="must lie in"):
        wrong.check()
