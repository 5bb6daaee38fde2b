"""A study's spec, as frozen models: what is trained on what, with which rates and seeds. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from statelab.models.settings import Anneal, EvaluationSettings, OptimiserSettings, TrainingSettings
from statelab.sweeps.parts import AnyTask, ModelSpec
from statelab.sweeps.schema import StrictInt, StrictModel, StrictNumber, StrictStr, model_of
from statelab.sweeps.search import SearchSettings, check_search, ranges_of

SafeName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
MAX_SEEDS = 10_000
MAX_LANES = 1_000_000


FIRST_SELECTION_SEED = 1_000_000
"""Where the selection seeds of a search begin that gives only their number: far from those of any [sweep]."""


def _seed_list(first: int) -> Callable[[Any], Any]:
    def expand(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if not 1 <= value <= MAX_SEEDS:
            raise ValueError(
                f"the number of seeds must lie in 1..{MAX_SEEDS}, got {value}; or give a list of seeds"
            )
        return list(range(first, first + value))

    return expand


def _different_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    twice = {seed for seed in seeds if seeds.count(seed) > 1} if len(seeds) <= MAX_SEEDS else set()
    if twice:
        raise ValueError(f"seed {min(twice)} stands in the list more than once")
    return seeds


Seed = Annotated[StrictInt, Field(ge=0, lt=2**32)]


def _seeds_from(first: int) -> Any:
    return Annotated[
        tuple[Seed, ...],
        BeforeValidator(_seed_list(first)),
        Field(min_length=1, max_length=MAX_SEEDS),
        AfterValidator(_different_seeds),
    ]


if TYPE_CHECKING:
    Seeds: TypeAlias = tuple[int, ...]
    SelectionSeeds: TypeAlias = tuple[int, ...]
else:
    Seeds = _seeds_from(0)
    SelectionSeeds = _seeds_from(FIRST_SELECTION_SEED)


class _Sweep(StrictModel):
    seeds: Seeds


class _Search(StrictModel):
    seeds: SelectionSeeds


class LoggerSpec(StrictModel):
    """A Lightning logger beside the records: by its name in Lightning, or as "package.module:Class".

    Further keys are its constructor's arguments.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    logger: Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$", max_length=200)]

    @model_validator(mode="after")
    def _leaves_places_to_us(self) -> LoggerSpec:
        if given := {"save_dir", "name", "version"} & (self.model_extra or {}).keys():
            raise ValueError(
                f"{min(given)!r} is not given here: each lane logs under its own name in the study's folder"
            )
        return self


if TYPE_CHECKING:
    AnnealSpec: TypeAlias = Any
    TrainingSpec: TypeAlias = Any
    EvaluationSpec: TypeAlias = Any
    SweepSpec: TypeAlias = Any
    SearchSpec: TypeAlias = Any
else:
    AnnealSpec = model_of("AnnealSpec", Anneal, given={})
    TrainingSpec = model_of(
        "TrainingSpec", TrainingSettings, leave=frozenset({"length", "stages", "anneal"}), given={"length": 1}
    )
    EvaluationSpec = model_of(
        "EvaluationSpec", EvaluationSettings, leave=frozenset({"test_lengths", "test_ranges"}), given={}
    )
    SweepSpec = model_of(
        "SweepSpec", OptimiserSettings, base=_Sweep, given={"learning_rate": 1e-3}, many=True
    )
    SearchSpec = model_of("SearchSpec", SearchSettings, base=_Search, given={})


class Spec(StrictModel):
    """A whole study: every task meets every model, at every rate, with every seed."""

    name: SafeName
    description: StrictStr = ""
    threshold: Annotated[StrictNumber, Field(gt=0, le=1)] = 0.9
    retries: Annotated[StrictInt, Field(ge=0, le=100)] = 1
    """How often a lane whose training raised an error is tried again."""
    tasks: Annotated[tuple[AnyTask, ...], Field(min_length=1)]
    models: Annotated[tuple[ModelSpec, ...], Field(min_length=1)]
    training: TrainingSpec = Field(default_factory=TrainingSpec)
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    anneal: AnnealSpec | None = None
    sweep: SweepSpec
    search: SearchSpec | None = None
    loggers: tuple[LoggerSpec, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _start_of_ranges(cls, data: Any) -> Any:
        """A number that is searched for in a range starts in its middle where [sweep] does not list it."""
        match data:
            case {"sweep": dict() as sweep, "search": dict() as search}:
                return data | {"sweep": {**ranges_of(search), **sweep}}
        return data

    @model_validator(mode="after")
    def _parts_fit(self) -> Spec:
        for kind, parts in (("tasks", self.tasks), ("models", self.models)):
            labels = [part.label for part in parts]
            twice = sorted({label for label in labels if labels.count(label) > 1})
            if twice:
                raise ValueError(f"two {kind} are called {twice[0]!r}: give each a name of its own")
        for task in self.tasks:
            for metric in {"by_distance", "exact_answers"} & set(self.evaluation.metrics):
                if metric not in task.build().metrics:
                    raise ValueError(
                        f"evaluation.metrics: {metric!r} cannot be measured on the task {task.label!r}"
                    )
        late = max(self.sweep.warmup)
        if late > self.training.steps:
            raise ValueError(f"sweep.warmup {late} is longer than training.steps {self.training.steps}")
        lanes = len(self.tasks) * len(self.models) * len(self.sweep.seeds)
        for name in SweepSpec.model_fields.keys() - {"seeds"}:
            lanes *= len(getattr(self.sweep, name))
        if lanes > MAX_LANES:
            raise ValueError(f"sweep: {lanes:,} lanes are more than a study may have ({MAX_LANES:,})")
        if self.search is not None:
            check_search(self.search, self.sweep.seeds, self.search.seeds)
        return self
