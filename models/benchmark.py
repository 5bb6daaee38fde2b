"""How much a population saves: R lanes at once against the same R runs one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.learner import Learner
from statelab.models.optimiser import LaneAdamW
from statelab.models.settings import EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.tasks.noisy_recall import NoisyRecall

WARM_UP = 2


def baseline(read: str = "plain") -> ModelConfig:
    """The mLSTM of the published noisy-recall study (arXiv 2607.19390): 77,716 parameters at vocabulary 80."""
    return ModelConfig(layers=(LayerConfig(mixer="mlstm", options={"read": read}),), width=94)


def population_table(device: torch.device, lanes: int, steps: int, batch: int, length: int, read: str) -> str:
    """Time per lane and step of a population of `lanes` and of single runs in sequence, on the same rows."""
    made = [Lane(seed=s, optimiser=OptimiserSettings(learning_rate=3e-3)) for s in range(lanes)]
    training = TrainingSettings(length=length, batch=batch, steps=steps + WARM_UP)
    together, losses = _time(made, training, device, steps, read)
    apart = [_time([lane], training, device, steps, read) for lane in made]
    alone = sum(seconds for seconds, _ in apart)
    gap = max(abs(a - b[1][0]) for a, b in zip(losses, apart, strict=True))
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    done = steps * lanes
    return "\n".join(
        [
            f"mLSTM {read}, {parameters(made, training, read):,} parameters, noisy recall, vocabulary 80",
            f"{name}; batch {batch}, length {length}, float32, {steps} steps",
            f"  {lanes} single runs in sequence: {_speed(alone, done)}",
            f"  one population of {lanes} lanes: {_speed(together, done)}",
            f"  ratio {alone / together:.2f}; largest difference of a lane's last loss {gap:.1e}",
        ]
    )


def _speed(seconds: float, lane_steps: int) -> str:
    return f"{1e3 * seconds / lane_steps:9.2f} ms a lane-step, {lane_steps / seconds:8.1f} lane-steps/s"


def parameters(lanes: Sequence[Lane], training: TrainingSettings, read: str) -> int:
    """Parameters of one lane."""
    return _learner(lanes[:1], training, read).population.parameters_per_lane


def _learner(lanes: Sequence[Lane], training: TrainingSettings, read: str) -> Learner:
    return Learner(NoisyRecall(), baseline(read), lanes, training, EvaluationSettings())


def _time(
    lanes: Sequence[Lane], training: TrainingSettings, device: torch.device, steps: int, read: str
) -> tuple[float, list[float]]:
    learner = _learner(lanes, training, read).to(device)
    optimiser: LaneAdamW = learner.configure_optimizers()

    def run(first: int, count: int) -> list[float]:
        losses = torch.zeros(len(lanes))
        for step in range(first, first + count):
            losses = learner.gradients(step)
            optimiser.alive_R = learner.alive_R
            optimiser.step()
        return [float(loss) for loss in losses.cpu()]

    # The last steps first: rows are made for several steps at once, and making them is part of what is timed.
    run(steps, WARM_UP)
    return _clock(lambda: run(0, steps), device)


def _clock(work: Callable[[], list[float]], device: torch.device) -> tuple[float, list[float]]:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result
