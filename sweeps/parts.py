"""The parts of a spec that tasks, mixers and a user's own layers fill: task settings and models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from statelab.models import MIXERS
from statelab.models.config import LayerConfig, ModelConfig, config_class, is_own, mixer_config
from statelab.models.hybrids import unroll
from statelab.models.settings import LengthStage, TrainingSettings
from statelab.sweeps.schema import StrictInt, StrictModel, StrictStr, model_of
from statelab.tasks import TASKS
from statelab.tasks.task import Task


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a name that is shown in tables has no line ends and no control characters")
    return text


MAX_LENGTH = 1 << 24
"""A bound that catches slips of the finger."""
Label = Annotated[StrictStr, Field(min_length=1, max_length=60), AfterValidator(_printable)]
Length = Annotated[StrictInt, Field(ge=1, le=MAX_LENGTH)]


class StageBase(StrictModel):
    """A stage of a curriculum, or a mixture of training lengths."""

    @model_validator(mode="after")
    def _works(self) -> StageBase:
        LengthStage(**dict(self))
        return self


if TYPE_CHECKING:
    StageSpec: TypeAlias = StageBase
else:
    StageSpec = model_of("StageSpec", LengthStage, base=StageBase)


class TaskSpec(StrictModel):
    """One task setting: the task's own options beside what every task takes."""

    task: StrictStr
    name: Label | None = None
    length: Length
    train: tuple[StageSpec, ...] = ()
    test_lengths: tuple[Length, ...] = ()
    test_ranges: tuple[tuple[Length, Length], ...] = ()

    @property
    def label(self) -> str:
        """The name shown in tables."""
        return self.name or self.task

    def build(self) -> Task:
        """The task itself."""
        source = TASKS[self.task]
        return source(**{item.name: getattr(self, item.name) for item in fields(source)})

    def stages(self) -> tuple[LengthStage, ...]:
        """The curriculum or mixture of training lengths."""
        return tuple(LengthStage(**dict(stage)) for stage in self.train)

    @model_validator(mode="after")
    def _sizes_work(self) -> TaskSpec:
        task = self.build()
        TrainingSettings(length=self.length, stages=self.stages())
        trained = (length for stage in self.stages() for length in stage.lengths)
        for length in (self.length, *self.test_lengths, *trained):
            task.check_length(length)
        for low, high in self.test_ranges:
            if low >= high:
                raise ValueError(f"test_ranges: a range is [shortest, longest], got {[low, high]}")
            task.check_length(high)
        return self


class LayerSpec(StrictModel):
    """One layer of a model: a registered mixer with its options, or a user's own class with any."""

    mixer: StrictStr

    def build(self) -> LayerConfig:
        """As plain data, with every option of a registered mixer filled in."""
        options = {name: value for name, value in self if name != "mixer"}
        return LayerConfig(mixer=self.mixer, options=options | (self.model_extra or {}))

    @model_validator(mode="after")
    def _options_work(self) -> LayerSpec:
        if not is_own(self.mixer):
            mixer_config(self.build())
        return self


class OwnLayerSpec(LayerSpec):
    """A user's own layer: its options are its constructor's arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)


TASK_SPECS: dict[str, type[TaskSpec]] = {
    name: model_of(f"{name}_task", task, base=TaskSpec) for name, task in TASKS.items()
}
LAYER_SPECS: dict[str, type[LayerSpec]] = {
    name: model_of(f"{name}_layer", config_class(name), base=LayerSpec) for name in MIXERS
} | {"own": OwnLayerSpec}


def _task_tag(value: Any) -> Any:
    return value.get("task") if isinstance(value, dict) else getattr(value, "task", None)


def _layer_tag(value: Any) -> Any:
    name = value.get("mixer") if isinstance(value, dict) else getattr(value, "mixer", None)
    return "own" if isinstance(name, str) and is_own(name) else name


def _unrolled(value: Any) -> Any:
    return unroll(value) if isinstance(value, list | tuple) else value


def _by_name(value: Any) -> Any:
    return {"mixer": value} if isinstance(value, str) else value


def _union(models: Iterable[tuple[str, Any]], tag: Any) -> Any:
    return Annotated[Union[tuple(Annotated[m, Tag(n)] for n, m in models)], Discriminator(tag)]  # noqa: UP007


if TYPE_CHECKING:
    AnyTask: TypeAlias = TaskSpec
    AnyLayer: TypeAlias = LayerSpec
else:
    AnyTask = _union(TASK_SPECS.items(), _task_tag)
    AnyLayer = Annotated[_union(LAYER_SPECS.items(), _layer_tag), BeforeValidator(_by_name)]


class ModelSpecBase(StrictModel):
    """One model: its layers and the backbone around them."""

    name: Label | None = None
    layers: Annotated[tuple[AnyLayer, ...], BeforeValidator(_unrolled), Field(min_length=1)]

    @property
    def label(self) -> str:
        """The name shown in tables."""
        return self.name or "+".join(dict.fromkeys(layer.mixer for layer in self.layers))

    def build(self) -> ModelConfig:
        """As plain data."""
        options = {
            item.name: getattr(self, item.name) for item in fields(ModelConfig) if item.name != "layers"
        }
        return ModelConfig(layers=tuple(layer.build() for layer in self.layers), **options)

    @model_validator(mode="after")
    def _sizes_work(self) -> ModelSpecBase:
        self.build().check()
        return self


if TYPE_CHECKING:
    ModelSpec: TypeAlias = ModelSpecBase
else:
    ModelSpec = model_of(
        "ModelSpec", ModelConfig, base=ModelSpecBase, leave=frozenset({"layers"}), given={"layers": ()}
    )
