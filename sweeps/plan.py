"""Which lanes a study asks for, given what has been found so far. Imports no torch.

Without a search that is every lane of the spec. With one, each cell first tries settings on selection seeds, and
its report seeds follow once one is chosen. The plan is a pure function of the spec and the records: whoever makes
it, the launcher or any worker, makes the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from statelab.models.settings import OptimiserSettings
from statelab.sweeps.cells import Cell, cells_of, lanes_of, settings_listed
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.search import rule, rungs
from statelab.sweeps.spec import Spec

AccuracyOf = Callable[[str], float | None]
"""A lane's final accuracy; NaN for one that has failed for good, None where there is none yet."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The setting chosen for a cell: its score is the objective, its accuracy the mean over selection seeds."""

    task: str
    model: str
    setting: OptimiserSettings
    score: float
    accuracy: float
    tried: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells to train, in that order; `is_open` while finished ones will be followed by more."""

    cells: tuple[Cell, ...]
    choices: tuple[Choice, ...]
    is_open: bool
    rule: str | None

    def ids(self, purpose: str) -> list[str]:
        """Ids of the lanes for a purpose."""
        return [cell.lane_id(lane) for cell in self.cells if cell.purpose == purpose for lane in cell.lanes]

    def choices_as_data(self) -> list[dict[str, Any]]:
        """For study.json."""
        return [asdict(choice) for choice in self.choices]


def make_plan(spec: Spec, folder: Path, failed: Collection[str] = ()) -> Plan:
    """The plan of a study with the records in `folder`; `failed` are lanes that are not tried again."""
    bases = cells_of(spec)
    if spec.search is None:
        return Plan(cells=bases, choices=(), is_open=False, rule=None)

    def accuracy_of(lane_id: str) -> float | None:
        result = LaneFolder(folder, lane_id).result()
        if result is None:
            return math.nan if lane_id in failed else None
        accuracy = result["row"]["accuracy"]
        return math.nan if accuracy is None else float(accuracy)

    cells: list[Cell] = []
    choices: list[Choice] = []
    for base in bases:
        selection = _Selection(spec, base, accuracy_of)
        cells += selection.cells
        if selection.choice is not None:
            choices.append(selection.choice)
            cells.append(replace(base, lanes=tuple(lanes_of([selection.choice.setting], spec.sweep.seeds))))
    return Plan(
        cells=tuple(cells),
        choices=tuple(choices),
        is_open=len(choices) < len(bases),
        rule=rule(spec.search, spec.threshold),
    )


def most_lanes(spec: Spec) -> tuple[int, int]:
    """How many lanes a cell has at most: those that choose its setting, and those that are reported."""
    listed = len(settings_listed(spec))
    if spec.search is None:
        return 0, listed * len(spec.sweep.seeds)
    settings = listed if spec.search.method == "grid" else max(spec.search.trials, listed)
    if spec.search.method == "tpe":
        settings = spec.search.trials
    tried = sum(count for count, _ in rungs(settings, spec.search.halving, spec.training.steps))
    return tried * len(spec.search.seeds), len(spec.sweep.seeds)


class _Selection:
    """The rounds of one cell's search as far as the results go; `choice` once the last one is finished."""

    def __init__(self, spec: Spec, base: Cell, accuracy_of: AccuracyOf) -> None:
        self._search = cast(Any, spec.search)
        self._spec, self._base, self._accuracy_of = spec, base, accuracy_of
        self.cells: list[Cell] = []
        self.choice: Choice | None = None
        rounds = self._tpe() if self._search.method == "tpe" else self._halving()
        for best, tried in rounds:
            self.choice = None
            if best is None:
                return
            setting, score, accuracy = best
            self.choice = Choice(
                task=base.task_label, model=base.model_label, setting=setting, score=score, accuracy=accuracy,
                tried=tried,
            )  # fmt: skip

    def _halving(self) -> Iterator[tuple[_Scored | None, int]]:
        settings = self._settings()
        tried, scored = len(settings), list[_Scored]()
        for count, steps in rungs(tried, self._search.halving, self._base.training.steps):
            found = self._scores(settings[:count], steps)
            if found is None:
                yield None, tried
                return
            scored, settings = found, [setting for setting, _, _ in found]
        yield scored[0], tried

    def _tpe(self) -> Iterator[tuple[_Scored | None, int]]:
        from statelab.sweeps.suggest import tpe_settings  # optuna takes a second to import

        search, steps = self._search, self._base.training.steps
        start, found = list(settings_listed(self._spec)), list[_Scored]()
        settings = start[: search.trials]
        while True:
            scored = self._scores(settings, steps)
            if scored is None:
                yield None, len(found)
                return
            found += scored
            if len(found) >= search.trials:
                break
            tried = sorted(((s, v) for s, v, _ in found), key=lambda item: repr(item[0]))
            count = min(search.together, search.trials - len(found))
            settings = tpe_settings(search, self._base.label, start[0], tried, count)
        yield min(found, key=_order(search.objective)), len(found)

    def _settings(self) -> list[OptimiserSettings]:
        listed = list(settings_listed(self._spec))
        if self._search.method == "grid":
            return listed
        from statelab.sweeps.suggest import random_settings

        drawn = random_settings(
            self._search, self._base.label, listed[0], max(0, self._search.trials - len(listed))
        )
        return list(dict.fromkeys([*listed, *drawn]))

    def _scores(self, settings: Sequence[OptimiserSettings], steps: int) -> list[_Scored] | None:
        """Add the cell that tries these settings; their scores, best first, once all of its lanes are finished."""
        seeds = self._search.seeds
        short = [replace(setting, warmup=min(setting.warmup, steps)) for setting in settings]
        training = replace(self._base.training, steps=steps)
        lanes = list(lanes_of(short, seeds))
        # Two settings may be one when their warm-up is cut short.
        cell = replace(self._base, purpose="selection", training=training, lanes=tuple(dict.fromkeys(lanes)))
        self.cells.append(cell)
        found = [self._accuracy_of(cell.lane_id(lane)) for lane in lanes]
        if None in found:
            return None
        each = [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]
        scored = [
            self._score(setting, accuracies) for setting, accuracies in zip(settings, each, strict=True)
        ]
        return sorted(scored, key=_order(self._search.objective))

    def _score(self, setting: OptimiserSettings, accuracies: Sequence[float | None]) -> _Scored:
        reached = [0.0 if a is None or math.isnan(a) else a for a in accuracies]
        mean = sum(reached) / len(reached)
        solved = sum(a >= self._spec.threshold for a in reached) / len(reached)
        return setting, solved if self._search.objective == "solved" else mean, mean


_Scored = tuple[OptimiserSettings, float, float]


def _order(objective: str) -> Callable[[_Scored], Any]:
    return lambda scored: (-scored[1], -scored[2], scored[0].learning_rate, repr(scored[0]))
