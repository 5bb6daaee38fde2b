"""Small cells for tests of populations, and the same training written once more, plainly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from statelab.models import MIXERS
from statelab.models.backbone import Backbone
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.learner import Learner
from statelab.models.optimiser import LaneAdamW
from statelab.models.settings import EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows

LAYERS: dict[str, LayerConfig] = {
    "attention": LayerConfig(mixer="attention", options={"heads": 2}),
    "rnn": LayerConfig(mixer="rnn", options={"heads": 2}),
    "m2rnn": LayerConfig(mixer="m2rnn", options={"heads": 2, "key_dim": 4}),
    "gated_delta_product": LayerConfig(mixer="gated_delta_product", options={"heads": 2}),
    "mamba3": LayerConfig(mixer="mamba3", options={"head_dim": 8, "d_state": 8}),
    "mamba3_mimo": LayerConfig(mixer="mamba3", options={"head_dim": 8, "d_state": 8, "rank": 2}),
    "gru": LayerConfig(mixer="gru", options={"heads": 2}),
    "mamba2": LayerConfig(mixer="mamba2", options={"head_dim": 8, "d_state": 5}),
    "gated_delta": LayerConfig(mixer="gated_delta", options={"heads": 2, "eigenvalues": "[0,1]"}),
    "gated_delta_negative": LayerConfig(mixer="gated_delta", options={"heads": 2, "eigenvalues": "[-1,1]"}),
    "mlstm": LayerConfig(mixer="mlstm", options={"heads": 4}),
    "mlstm_orthogonal": LayerConfig(mixer="mlstm", options={"heads": 4, "read": "orthogonal"}),
}
assert {layer.mixer for layer in LAYERS.values()} == set(MIXERS), "every mixer trains as a population"
TASK = Parity(answer="running")
TRAINING = TrainingSettings(length=9, steps=20, batch=3, schedule="cosine", arithmetic="float64")
EVALUATION = EvaluationSettings(every=8, rows=7, test_lengths=(5, 13))


def model_of(name: str, width: int = 8) -> ModelConfig:
    return ModelConfig(layers=(LAYERS[name],), width=width)


def lanes_of(count: int = 8) -> list[Lane]:
    """Lanes that differ in seed, rate and other numbers; the last two share one seed."""
    lanes = [
        Lane(
            seed=100 + 7 * index,
            optimiser=OptimiserSettings(
                learning_rate=1e-3 * (index + 1),
                warmup=index % 3,
                weight_decay=0.01 * index,
                clip=0.5 * (index % 2),
            ),
        )
        for index in range(count)
    ]
    return [*lanes[:-1], Lane(seed=lanes[-2].seed, optimiser=lanes[-1].optimiser)] if count > 1 else lanes


def learner_of(name: str, lanes: Sequence[Lane], **changes: Any) -> Learner:
    training = changes.pop("training", TRAINING)
    return Learner(TASK, model_of(name), lanes, training, changes.pop("evaluation", EVALUATION))


def train(learner: Learner, start: int, stop: int, optimiser: LaneAdamW | None = None) -> Tensor:
    """Losses [steps, R] of a learner driven without a Trainer."""
    optimiser = optimiser or learner.configure_optimizers()
    losses = []
    for step in range(start, stop):
        losses.append(learner.gradients(step))
        optimiser.alive_R = learner.alive_R
        optimiser.step()
    return torch.stack(losses)


def train_alone(name: str, lane: Lane) -> tuple[list[float], nn.Module]:
    """One lane trained by a loop of plain torch: a module, torch.optim.AdamW, clip_grad_norm_."""
    torch.manual_seed(lane.seed)
    model = Backbone(model_of(name), TASK.vocab_size).double()
    numbers = lane.optimiser
    marked = [p for p in model.parameters() if getattr(p, "no_weight_decay", False)]
    others = [p for p in model.parameters() if not getattr(p, "no_weight_decay", False)]
    optimiser = torch.optim.AdamW(
        [{"params": marked, "weight_decay": 0.0}, {"params": others, "weight_decay": numbers.weight_decay}],
        lr=numbers.learning_rate,
    )
    losses = []
    for step in range(TRAINING.steps):
        rows = Rows.span([lane.seed], "train", step * TRAINING.batch, TRAINING.batch)
        batch = TASK.sample(rows, TRAINING.length)
        logits, _ = model(batch.inputs[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.loss_targets[0].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if numbers.clip:
            nn.utils.clip_grad_norm_(model.parameters(), numbers.clip)
        done = (step - numbers.warmup) / (TRAINING.steps - numbers.warmup)
        factor = 0.5 * (1 + torch.tensor(torch.pi * done, dtype=torch.float64).cos().item())
        for group in optimiser.param_groups:
            rising = (step + 1) / max(numbers.warmup, 1)
            group["lr"] = numbers.learning_rate * (rising if step < numbers.warmup else factor)
        optimiser.step()
        losses.append(loss.item())
    return losses, model
