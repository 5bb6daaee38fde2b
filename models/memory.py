"""How much memory a population will take, found before its first step by a step on tensors without storage.

One lane's step runs on torch's device `meta`, or under its FakeTensorMode: both compute shapes alone, and every
tensor's bytes are counted from its making to its end. Lanes add up: R of them take R times one lane's.
Legend: R lanes, S seeds, B rows, T time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from statelab.models.config import ModelConfig
from statelab.models.learner import Learner
from statelab.models.metrics import loss_sums, right_answers
from statelab.models.settings import EvaluationSettings, Lane, OptimiserSettings, TrainingSettings
from statelab.models.stream import ROW_TENSORS, steps_ahead
from statelab.tasks.task import Task

MEASURED = (64, 128, 192)
"""Lengths at which a longer one's memory is measured: it is a polynomial of degree 2 (attention's) through these."""

BLOCK = 512
"""Bytes of which torch's CUDA allocator hands out multiples."""

FIXED = 256 << 20
"""On a card, for libraries' workspaces, graphs, and what their memory is split into."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that a population takes on its device.

    `state` (weights, moments), `step` (activations and gradients at their peak) and `evaluation` are a lane's, `rows`
    those of a seed. Off by less than a quarter of what torch really hands out, in our tests (less than two fifths of it
    with attention on a card, whose kernel takes memory of its own); a captured step and an evaluation do not share
    their memory.
    """

    state: int
    step: int
    evaluation: int
    rows: int
    fixed: int
    apart: bool

    def total(self, lanes: int, seeds: int) -> int:
        """Bytes at the peak of `lanes` lanes that have `seeds` different seeds."""
        step, evaluation = self.step, self.evaluation
        return (
            lanes * (self.state + (step + evaluation if self.apart else max(step, evaluation)))
            + seeds * self.rows
            + self.fixed
        )

    def lanes_in(self, free: int) -> int:
        """Lanes, each of a seed of its own, that fit into `free` bytes; at least 1."""
        each = self.total(1, 1) - self.fixed
        return max(1, (free - self.fixed) // each)


def predict(
    task: Task,
    model: ModelConfig,
    training: TrainingSettings,
    evaluation: EvaluationSettings,
    device: torch.device,
    seeds: int = 1,
) -> Memory:
    """What training lanes of a cell on `device` will take; `seeds` is how many seeds the population will have.

    Nothing is computed and no memory is taken, on a card neither; where there is no card, a card's memory is that of
    the forms that run on a CPU, which take more than kernels do. Raises ValueError for a model that cannot be run
    without the values of its tensors.
    """
    try:
        return _predict(task, model, training, evaluation, device, seeds)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"its memory cannot be told beforehand ({reason})") from error


def _predict(
    task: Task,
    model: ModelConfig,
    training: TrainingSettings,
    evaluation: EvaluationSettings,
    device: torch.device,
    seeds: int,
) -> Memory:
    lane = Lane(seed=0, optimiser=OptimiserSettings(learning_rate=1e-3))
    learner = Learner(task, model, [lane], training, evaluation)
    width = learner.rows(0).inputs.shape[-1] - training.length_at(0)
    longest = max((n for stage in training.stages for n in stage.lengths), default=training.length)
    tested = max((training.length, *evaluation.test_lengths, *(high for _, high in evaluation.test_ranges)))
    on_card = device.type == "cuda"
    where = device if on_card and torch.cuda.is_available() else torch.device("cpu")
    attends = any(layer.mixer == "attention" for layer in model.layers)
    if where.type == "cpu" and not attends and training.arithmetic != "bf16":
        # The same shapes in a fraction of the time, but torch casts no such tensor, and has another attention there.
        where = torch.device("meta")

    def step(length: int) -> int:
        return _peak(learner, where, (1, training.batch, length + width), trains=True)

    def evaluate(length: int) -> int:
        rows = min(evaluation.rows, learner.evaluation.rows_of_piece(length))
        return _at(length, lambda n: _peak(learner, where, (1, rows, n + width), trains=False))

    ahead = steps_ahead(training, seeds, device.type)
    return Memory(
        state=3 * learner.population.flat.nbytes,
        step=_at(longest, step),
        evaluation=max(evaluate(length) for length in {training.length, tested}),
        rows=8 * ROW_TENSORS * ahead * training.batch * (longest + width),
        fixed=FIXED if on_card else 0,
        apart=on_card,
    )


def _at(length: int, measure: Callable[[int], int]) -> int:
    """What is measured at a length, or the parabola through what is measured at three shorter ones."""
    if length <= MEASURED[-1]:
        return measure(length)
    a, b, c = MEASURED
    at_a, at_b, at_c = (measure(n) for n in MEASURED)
    first, second = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    return round(at_a + first * (length - a) + (second - first) / (c - a) * (length - a) * (length - b))


def _peak(learner: Learner, device: torch.device, shape: Sequence[int], *, trains: bool) -> int:
    """Bytes at the peak of one lane's step, or of one piece of its evaluation, beyond weights and moments."""
    optimiser = learner.configure_optimizers()
    shapes_only = nullcontext() if device.type == "meta" else FakeTensorMode(allow_non_fake_inputs=True)
    with shapes_only as fake:

        def faked(tensor: Tensor) -> Tensor:
            return (fake.from_tensor(tensor.detach()) if fake else tensor.detach()).to(device)

        tensors = tree_map(faked, learner.tensors(optimiser))
        inputs = torch.zeros(tuple(shape), dtype=torch.int64, device=device)
        with _Counting(device) as counted:
            if trains:
                learner.step_function(optimiser)(tensors, inputs, inputs)
            else:
                with torch.no_grad():
                    logits = learner.population.logits(tensors.flat_RP, tensors.buffers, inputs)
                    loss_sums(logits, inputs), right_answers(logits, inputs)
    peak: int = counted.peak
    return peak


def free_bytes(device: torch.device) -> int | None:
    """Memory that torch may still take on a device: a card's, or this process's share of the machine's.

    None where the system does not say.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    found = [_available(), _left_in_group()]
    return min((size for size in found if size is not None), default=None)


def _available() -> int | None:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _left_in_group() -> int | None:
    """What a container's limit (cgroup v2) leaves."""
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


class _Counting(TorchDispatchMode):
    """Counts the bytes of tensors made within, each until nothing holds its storage any more."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._block = BLOCK if device.type == "cuda" else 1
        self._seen = WeakIdKeyDictionary()
        self._now = 0
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {
            id(leaf.untyped_storage()) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
        }
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and id(leaf.untyped_storage()) not in given:
                self._count(leaf.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._seen:
            return
        size = -(-storage.nbytes() // self._block) * self._block
        self._seen[storage] = size
        self._now += size
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self._now -= size
