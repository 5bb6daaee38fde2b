"""What the command line tells without training: a spec's cells, a study's state, tasks and mixers."""

from __future__ import annotations

import json
import textwrap
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from statelab.models import MIXERS
from statelab.models.config import LayerConfig, config_class, nearest
from statelab.models.describe import describe_mixers
from statelab.sweeps.cells import cells_of
from statelab.sweeps.errors import UserError
from statelab.sweeps.read import read_spec, sentences
from statelab.sweeps.record import LaneFolder, collect, study_lanes
from statelab.sweeps.spec import TASK_SPECS, Spec
from statelab.tasks import TASKS
from statelab.tasks.task import Task

SHOWN_WIDTH = 64


def describe(spec: Spec) -> str:
    """What a spec would run."""
    cells = cells_of(spec)
    lanes = sum(len(cell.lanes) for cell in cells)
    training = spec.training
    lines = [
        f"{spec.name}: {len(cells)} cells, {lanes} lanes, {training.steps} steps of {training.batch} rows each",
        *(f"  {cell.label}: length {cell.training.length}, {len(cell.lanes)} lanes" for cell in cells),
    ]
    return "\n".join(lines)


def folder_of(study: Path, runs: Path) -> Path:
    """The folder of a study given by itself, by its name under `runs`, or by its spec. Raises UserError."""
    if study.is_dir():
        return study
    if study.is_file():
        return runs / read_spec(study).name
    if (runs / study).is_dir():
        return runs / study
    known = sorted(path.parent.name for path in runs.glob("*/study.json"))
    raise UserError(
        f"no study {str(study)!r}: give its folder, its name under {runs}, or its spec"
        + (
            f"; known: {', '.join(known)}.{nearest(study.name, known)}"
            if known
            else "; none has been run yet"
        )
    )


def status_of(folder: Path) -> str:
    """Finished, solved and diverged lanes of each cell, and how many wait or run."""
    ids = study_lanes(folder)
    if ids is None:
        raise UserError(f"{folder} is no study: it has no study.json")
    from statelab.sweeps.study import Ledger

    kept = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    lanes = collect(folder)
    counts = Ledger(folder, kept["name"]).counts(i for i in ids if not LaneFolder(folder, i).finished())
    lines = [
        f"{kept['name']}: {len(lanes)} of {len(ids)} lanes finished, "
        f"{counts['waiting']} waiting, {counts['running']} running"
    ]
    for (task, model), cell in lanes.groupby(["task", "model"], sort=False):
        solved = int((cell["accuracy"] >= cell["threshold"]).sum())
        diverged = int((cell["status"] == "diverged").sum())
        lines.append(f"  {task} × {model}: finished {len(cell)}, solved {solved}, diverged {diverged}")
    return "\n".join(lines)


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
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: an option is given as key=value")
        data[key.strip()] = _value(value.strip())
    try:
        spec = TASK_SPECS[name].model_validate(data)
    except ValidationError as error:
        raise UserError("\n".join(sentences(error, ["tasks", 0, name]))) from None
    return spec.build(), spec.length


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
    hints = get_type_hints(source, include_extras=True)
    lines = {}
    for item in fields(source):
        hint, *notes = (
            get_args(hints[item.name]) if hasattr(hints[item.name], "__metadata__") else (hints[item.name],)
        )
        default = "" if item.default is MISSING else f" = {item.default!r}"
        values = get_args(hint) if str(hint).startswith("typing.Literal") else ()
        text = (notes[0] if notes else "") + (f" ({' | '.join(map(str, values))})" if values else "")
        lines[f"{item.name}{default}"] = text
    return _table(lines).splitlines()


def _table(rows: dict[str, str]) -> str:
    wide = max((len(name) for name in rows), default=0)
    return "\n".join(f"  {name:<{wide}}  {text}".rstrip() for name, text in rows.items())


def _first_line(source: type) -> str:
    return _doc(source).splitlines()[0]


def _doc(source: type) -> str:
    import inspect

    return inspect.getdoc(source) or source.__name__
