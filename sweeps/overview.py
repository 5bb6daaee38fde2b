"""What the command line tells without training: a spec's cells, a study's state, tasks and mixers."""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from statelab.models import MIXERS
from statelab.models.config import LayerConfig, config_class, nearest
from statelab.models.describe import describe_mixers, options_with_help
from statelab.sweeps.cells import cells_of
from statelab.sweeps.errors import UserError
from statelab.sweeps.parts import TASK_SPECS
from statelab.sweeps.plan import most_lanes
from statelab.sweeps.read import sentences
from statelab.sweeps.search import rule
from statelab.sweeps.spec import Spec
from statelab.tasks import TASKS
from statelab.tasks.task import Task

SHOWN_WIDTH = 64


def describe(spec: Spec) -> str:
    """What a spec would run."""
    cells = cells_of(spec)
    selection, report = most_lanes(spec)
    training = spec.training
    lanes = (
        f"{len(cells) * report} lanes"
        if spec.search is None
        else (f"{len(cells) * selection} lanes to choose settings and {len(cells) * report} to report")
    )
    each = f"{report} lanes" if spec.search is None else f"{selection} + {report} lanes"
    return "\n".join(
        [
            f"{spec.name}: {len(cells)} cells, {lanes}, {training.steps} steps of {training.batch} rows each",
            *(f"  {cell.label}: length {cell.training.length}, {each}" for cell in cells),
            *([] if spec.search is None else [rule(spec.search, spec.threshold)]),
        ]
    )


def list_of_tasks() -> str:
    """Every task with a line each."""
    return _table({name: _first_line(task) for name, task in TASKS.items()}) + "\n\nstatelab tasks show NAME"


def list_of_mixers() -> str:
    """Every mixer: what it is, its parameters and state at width SHOWN_WIDTH with its defaults, its source."""
    from statelab.models.build import build_mixer

    lines = [f"parameters and floats of state of one layer at width {SHOWN_WIDTH}, with its defaults", ""]
    for each in describe_mixers():
        layer = build_mixer(LayerConfig(mixer=each.name), SHOWN_WIDTH)
        parameters = sum(parameter.numel() for parameter in layer.parameters())
        state = "grows" if layer.state_size is None else f"{layer.state_size:,}"
        lines += [
            f"  {each.name:<20} {parameters:>8,} parameters, state {state}",
            *(f"      {line}" for line in textwrap.wrap(f"{each.summary} {each.source}", 90)),
        ]
    return "\n".join([*lines, "", "statelab models show NAME"])


def show_mixer(name: str) -> str:
    """A mixer's options with defaults, what each does, and its source. Raises UserError."""
    _known(name, MIXERS, "mixer")
    source = config_class(name)
    return "\n".join([_doc(source), "", *_options(source)])


def task_of(name: str, settings: list[str], length: int | None) -> tuple[Task, int]:
    """The task of a name and of options given as key=value, and its length. Raises UserError."""
    _known(name, TASKS, "task")
    data: dict[str, Any] = {"task": name, "length": _shown_length(TASKS[name]) if length is None else length}
    data |= options_of(settings, "--set")
    try:
        spec = TASK_SPECS[name].model_validate(data)
    except ValidationError as error:
        raise UserError("\n".join(sentences(error, ["tasks", 0, name]))) from None
    return spec.build(), spec.length


def options_of(settings: list[str], flag: str) -> dict[str, Any]:
    """Options given as key=value on the command line, values as TOML reads them, else words. Raises UserError."""
    options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{flag} {setting}: an option is given as key=value")
        options[key.strip()] = _value(value.strip())
    return options


def show_rows(name: str, task: Task, length: int, rows: int, seed: int) -> str:
    """What a task is, its options, and rows of it with their targets, for a person."""
    from statelab.tasks.show import show

    shown = show(task, length, rows=rows, seed=seed)
    return "\n".join([_doc(TASKS[name]), "", *_options(TASKS[name]), "", shown])


def plot_rows(path: Path, name: str, task: Task, length: int, rows: int, seed: int) -> None:
    """Draw rows of a task into a PNG or SVG file. Raises UserError for another kind of file."""
    from statelab.analysis.rows_figure import rows_figure, write_rows
    from statelab.tasks.rows import Rows

    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {path}: a picture of rows is a .png or a .svg file")
    batch = task.sample(Rows.span([seed], "train", 0, rows), length)
    inputs, targets = batch.inputs[0].numpy(), batch.targets[0].numpy()
    write_rows(rows_figure(inputs, targets, task.kinds, f"{name} at {length}", task.describe), path)


def _shown_length(source: type[Task]) -> int:
    """The shortest length from 16 on that the task has, as it is without options."""
    for length in range(16, 4096):
        try:
            source().check_length(length)
        except ValueError:
            continue
        return length
    return 16


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _known(name: str, registry: dict[str, Any], kind: str) -> None:
    if name not in registry:
        raise UserError(f"unknown {kind} {name!r}; known: {', '.join(registry)}.{nearest(name, registry)}")


def _options(source: type) -> list[str]:
    lines = {}
    for option in options_with_help(source):
        default = "" if option.default is MISSING else f" = {option.default!r}"
        values = f" ({option.kind})" if option.is_choice else ""
        lines[f"{option.name}{default}"] = option.help + values
    return _table(lines).splitlines()


def _table(rows: dict[str, str]) -> str:
    wide = max((len(name) for name in rows), default=0)
    return "\n".join(f"  {name:<{wide}}  {text}".rstrip() for name, text in rows.items())


def _first_line(source: type) -> str:
    return _doc(source).splitlines()[0]


def _doc(source: type) -> str:
    import inspect

    return inspect.getdoc(source) or source.__name__
