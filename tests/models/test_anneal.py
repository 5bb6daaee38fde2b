"""The blend of orthogonal reads moves while training, for each lane at its own time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from statelab.models.anneal import blend_at, gated
from statelab.models.blend import blend_buffers
from statelab.models.learner import Learner
from statelab.models.settings import Anneal, EvaluationSettings, TrainingSettings
from statelab.sweeps.run import fit, make_trainer
from tests.models.training import TASK, lanes_of, model_of

CPU = torch.device("cpu")


def test_a_fixed_line_goes_from_1_to_its_end() -> None:
    anneal = Anneal(start=10, dwell=5, span=4, end=0.2)
    found = [blend_at(anneal, step, torch.tensor([-1])).item() for step in (0, 15, 16, 17, 19, 100)]
    assert found == pytest.approx([1, 1, 0.8, 0.6, 0.2, 0.2])


def test_a_gated_line_begins_at_each_lanes_own_evaluation() -> None:
    anneal = Anneal(gate=0.9, dwell=10, span=10)
    gated_at = torch.tensor([-1, -1, -1])
    gated_at = gated(anneal, 5, torch.tensor([0.5, 0.9, 0.1]), gated_at)
    gated_at = gated(anneal, 10, torch.tensor([0.95, 0.2, 0.1]), gated_at)
    assert gated_at.tolist() == [10, 5, -1]
    assert blend_at(anneal, 20, gated_at).tolist() == pytest.approx([1.0, 0.5, 1.0])
    assert blend_at(anneal, 10**6, gated_at).tolist() == [0.0, 0.0, 1.0]


def annealed() -> Learner:
    training = TrainingSettings(
        length=5, steps=10, batch=2, arithmetic="float64", anneal=Anneal(gate=1e-9, dwell=1, span=4)
    )
    evaluation = EvaluationSettings(every=3, rows=4, test_lengths=(5,))
    return Learner(TASK, model_of("mlstm_orthogonal"), lanes_of(2), training, evaluation)


def test_a_learner_moves_its_blend_and_a_resumed_one_too(tmp_path: Path) -> None:
    whole = annealed()
    seen: list[list[float]] = []

    def note(step: int) -> bool:
        seen.append(blend_buffers(whole.population)[0].tolist())
        return True

    whole.on_step = note
    make_trainer(CPU, []).fit(whole)
    assert [lanes[0] for lanes in seen] == [1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0]

    cut, path = annealed(), tmp_path / "lanes.ckpt"
    trainer = make_trainer(CPU, [])

    def save(step: int) -> bool:
        if step == 7:
            trainer.save_checkpoint(path)
        return True

    cut.on_step = save
    trainer.fit(cut)
    resumed = fit(annealed(), CPU, checkpoint=path)
    assert torch.equal(resumed.population.flat, whole.population.flat)
    assert [m.plain() for m in resumed.evaluations] == [m.plain() for m in whole.evaluations]


@pytest.mark.parametrize(
    ("values", "sentence"), [({"span": 0}, "span 0"), ({"gate": 1.5}, "gate is"), ({"end": -1.0}, "end is")]
)
def test_values_that_cannot_work_are_refused(values: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Anneal(**values)  # type: ignore[arg-type]
