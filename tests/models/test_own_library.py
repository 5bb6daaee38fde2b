"""A layer of another library, named in a spec as it is: torch's GRU, which no vmap lifts."""

from __future__ import annotations

import warnings

import pytest
import torch

from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.population import Population

TORCHS = LayerConfig(mixer="torch.nn:GRU", options={"hidden_size": 8, "batch_first": True})
CONFIG = ModelConfig(layers=(TORCHS,), width=8)


def build() -> Backbone:
    return Backbone(CONFIG, vocab_size=3)


def test_it_is_read_in_pieces() -> None:
    model, tokens = build(), torch.randint(0, 3, (2, 9))
    one, state = model(tokens[:, :4])
    two, _ = model(tokens[:, 4:], state)
    torch.testing.assert_close(torch.cat((one, two), dim=1), model(tokens)[0])


def test_its_lanes_run_one_after_another_with_one_sentence() -> None:
    population = Population(build, [5, 6])
    tokens = torch.randint(0, 3, (2, 4, 9))
    with pytest.warns(UserWarning, match="cannot lift .* its lanes run one after another"):
        logits = population(tokens)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(population(tokens), logits)
    for lane in range(2):
        alone = build()
        alone.load_state_dict(population.lane_state(lane))
        torch.testing.assert_close(logits[lane], alone(tokens[lane])[0])
    logits.square().sum().backward()  # type: ignore[no-untyped-call]
    assert population.flat.grad is not None
    assert (population.flat.grad.abs().amax(dim=1) > 0).all()
