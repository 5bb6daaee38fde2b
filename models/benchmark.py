"""What a population saves: its steps made in several ways, beside single runs one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from statelab.models.arithmetic import check_arithmetic
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.execution import Execution
from statelab.models.learner import Learner
from statelab.models.settings import Arithmetic, EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.tasks.noisy_recall import NoisyRecall

WARM_UP = 4
"""Steps before the clock starts: two outside a graph, one that captures, one that replays."""

KERNELS, KERNEL_NAME = 25, 90
"""Kernels that a profile shows, and letters of their names."""

COMPARED = 3
"""Steps whose losses are compared with float64's."""


def baseline(read: str = "plain") -> ModelConfig:
    """The mLSTM of the published noisy-recall study (arXiv 2607.19390): 77,716 parameters at vocabulary 80."""
    return ModelConfig(layers=(LayerConfig(mixer="mlstm", options={"read": read}),), width=94)


def prototype() -> ModelConfig:
    """Two plain mLSTM blocks of width 64 with 2 heads."""
    layer = LayerConfig(mixer="mlstm", options={"heads": 2, "block": "plain"})
    return ModelConfig(layers=(layer, layer), width=64)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with the sizes at which it is trained."""

    model: ModelConfig
    vocab: int
    length: int
    lanes: int = 24
    batch: int = 64
    steps: int = 64


CASES = {
    "baseline": Case(model=baseline(), vocab=80, length=512),
    "orthogonal": Case(model=baseline("orthogonal"), vocab=96, length=768, lanes=4, steps=16),
    "prototype": Case(model=prototype(), vocab=96, length=128),
}

WAYS = {
    "one run, eager": Execution(capture="off", compile="off"),
    "population, eager": Execution(capture="off", compile="off"),
    "captured": Execution(capture="on", compile="off"),
    "compiled, captured": Execution(capture="on", compile="on"),
}
"""Ways of making steps; the first is for a lane alone, the others for a population."""

PROFILED = {"captured": "captured", "compiled": "compiled, captured"}


@dataclass
class Timing:
    """What one way took: seconds a lane-step, seconds of its first WARM_UP steps, bytes at its peak, and losses
    `[steps, lanes]` of the first ones."""

    seconds: float
    set_up: float
    peak: int
    way: str
    losses: Tensor = field(repr=False)


def tables(
    device: torch.device,
    names: Sequence[str],
    arithmetic: str,
    profile: str = "",
    *,
    sizes: Mapping[str, int | None] | None = None,
) -> Iterator[str]:
    """A table for each case, as soon as it is measured; `sizes` (lanes, batch, length, steps) replace a case's own.

    With `profile`, captured or compiled, the kernels of such a step instead. Raises ValueError for names that there
    are not, and for arithmetic or a profile that the device has not.
    """
    for kind, name, known in (
        *(("case", name, tuple(CASES)) for name in names),
        ("arithmetic", arithmetic, get_args(Arithmetic)),
        ("profile", profile, ("", *PROFILED)),
    ):
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(filter(None, known))}")
    if profile and device.type != "cuda":
        raise ValueError(f"a profile is of a CUDA device's kernels, and this is {device}")
    chosen = cast(Arithmetic, arithmetic)
    check_arithmetic(chosen, device)
    for name in names:
        changes: dict[str, Any] = {key: size for key, size in (sizes or {}).items() if size}
        case = replace(CASES[name], **changes)
        if profile:
            yield f"{name}, {arithmetic}\n" + kernels_of(case, device, chosen, WAYS[PROFILED[profile]])
        else:
            yield "\n".join(_table(name, case, device, chosen))


def _table(name: str, case: Case, device: torch.device, arithmetic: Arithmetic) -> Iterator[str]:
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    one = learner_of(case, case.lanes, arithmetic)
    yield (
        f"{name}: {one.population.parameters_per_lane:,} parameters, noisy recall, vocabulary {case.vocab}, "
        f"batch {case.batch}, length {case.length}, {arithmetic}; {case.lanes} lanes; {where}, "
        f"torch {torch.__version__}"
    )
    yield f"  {'':22} {'ms a lane-step':>14} {'set-up s':>9} {'GiB':>6} {'off float64':>12}  made"
    exact = _exact(case, device)
    for way, execution in WAYS.items():
        if device.type != "cuda" and "eager" not in way:
            continue
        timing = measure(
            case, device, arithmetic, execution, lanes=1 if way == "one run, eager" else case.lanes
        )
        lanes = min(exact.shape[1], timing.losses.shape[1])
        off = (timing.losses.double() - exact)[:, :lanes].abs().max()
        yield (
            f"  {way:22} {1e3 * timing.seconds:14.3f} {timing.set_up:9.1f} {timing.peak / 2**30:6.2f} "
            f"{float(off):12.1e}  {timing.way}"
        )
    yield f"  {'rows alone':22} {1e3 * _rows(case, device):14.3f}"


def learner_of(case: Case, lanes: int, arithmetic: Arithmetic) -> Learner:
    """A population of a case's model, lane r with seed r."""
    made = [Lane(seed=seed, optimiser=OptimiserSettings(learning_rate=3e-3)) for seed in range(lanes)]
    training = TrainingSettings(
        length=case.length, batch=case.batch, steps=case.steps + WARM_UP, arithmetic=arithmetic
    )
    return Learner(NoisyRecall(vocab=case.vocab), case.model, made, training, EvaluationSettings())


def measure(
    case: Case, device: torch.device, arithmetic: Arithmetic, execution: Execution, *, lanes: int
) -> Timing:
    """Train a population in one way and time it, rows included."""
    learner = learner_of(case, lanes, arithmetic).to(device)
    learner.execution = execution
    steps = learner.whole_steps(learner.configure_optimizers())
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)

    def run(first: int, last: int) -> list[Tensor]:
        rows = (learner.rows(step) for step in range(first, last))
        return [steps.make(batch, learner.seed_of_lane_R).clone() for batch in rows]

    losses: list[Tensor] = []
    set_up = clock(lambda: losses.extend(run(0, WARM_UP)), device)
    count = case.steps if lanes > 1 else min(case.steps, 10)
    seconds = clock(lambda: run(WARM_UP, WARM_UP + count), device)
    # What graphs hold counts as reserved, and as allocated only while one is captured.
    peak = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
    return Timing(seconds / (count * lanes), set_up, peak, steps.way, torch.stack(losses[:COMPARED]).cpu())


def _exact(case: Case, device: torch.device) -> Tensor:
    """Losses `[steps, 1]` of lane 0 in float64, from the same initial weights."""
    learner = learner_of(case, 1, "float64").to(device)
    steps = learner.whole_steps(learner.configure_optimizers())
    rows = (learner.rows(step) for step in range(COMPARED))
    return torch.stack([steps.make(batch, learner.seed_of_lane_R).clone() for batch in rows]).cpu()


def _rows(case: Case, device: torch.device) -> float:
    """Seconds a lane-step that the rows alone take."""
    first, learner = (learner_of(case, case.lanes, "float32").to(device) for _ in range(2))
    first.rows(0)
    return clock(lambda: [learner.rows(step) for step in range(case.steps)], device) / (
        case.steps * case.lanes
    )


def kernels_of(case: Case, device: torch.device, arithmetic: Arithmetic, execution: Execution) -> str:
    """The kernels of a step that take longest: share, time and number in one step."""
    learner = learner_of(case, case.lanes, arithmetic).to(device)
    learner.execution = execution
    steps = learner.whole_steps(learner.configure_optimizers())

    def run(first: int, last: int) -> None:
        for step in range(first, last):
            steps.make(learner.rows(step), learner.seed_of_lane_R)
        torch.cuda.synchronize(device)

    run(0, WARM_UP)
    count = min(8, case.steps)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as found:
        run(WARM_UP, WARM_UP + count)
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    lines = [f"  {total / count / 1e3:.3f} ms of kernels a step of {case.lanes} lanes, {steps.way}"]
    lines += [
        f"  {event.self_device_time_total / total:6.1%} {event.self_device_time_total / count:9.1f} µs "
        f"{event.count / count:6.1f} ×  {event.key[:KERNEL_NAME]}"
        for event in events[:KERNELS]
    ]
    return "\n".join(lines)


def clock(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that some work takes, on the device too."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
