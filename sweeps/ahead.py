"""Workers that are started ahead: they import what training needs while their launcher still finds out what waits.

A guess decides how many and with what command line and environment; a pool takes those that are what it would start,
and starts others itself. Imports neither torch nor optuna.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from statelab.sweeps.engine import Crew
from statelab.sweeps.plan import Plan, make_plan, most_lanes
from statelab.sweeps.pool import cores, die_with_launcher, environment_of, visible_cards
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.spec import Spec

AHEAD = "STATELAB_AHEAD"
"""Set in a worker that is to wait, once it has imported what it needs, for a line from its launcher."""


def likely_crew(
    spec: Spec, folder: Path, device: str, max_lanes: int, workers: int, url: str | None
) -> Crew | None:
    """The crew that a launcher will probably want on this machine; None where it will train by itself, or not at all.

    Whether a lane waits is told by the records alone: a lane that is never tried again counts too.
    """
    plan = make_plan(spec, folder)
    open_cells = [
        sum(not LaneFolder(folder, cell.lane_id(lane)).finished() for lane in cell.lanes)
        for cell in plan.cells
    ]
    lanes, cells = sum(open_cells), sum(map(bool, open_cells))
    cards = visible_cards() if device in ("auto", "cuda") else 0
    count = workers or usual_workers(cells, lanes, cards)
    count = min(count, most_lanes_of(spec, plan, lanes)) if lanes else 0
    where = "cuda" if cards else "cpu"
    return Crew(folder, count, where, max_lanes, url) if count > 1 and device in ("auto", where) else None


def usual_workers(cells: int, lanes: int, cards: int) -> int:
    """How many workers train what waits, unless a number is asked for: one a card, or else one a core and cell."""
    # On a card a population may be shared out, since it was the whole of the work; on cores it is not worth it.
    return max(1, min(lanes, cards) if cards else min(cells, cores()))


def most_lanes_of(spec: Spec, plan: Plan, waiting: int) -> int:
    """How many lanes wait or may follow: workers beyond one for each would find nothing to do."""
    return len(spec.tasks) * len(spec.models) * sum(most_lanes(spec)) if plan.is_open else waiting


class Ahead:
    """Processes of a crew that wait, for the duration of a block, to be taken."""

    def __init__(self, crew: Crew | None) -> None:
        self._crew = crew
        self._waiting: list[tuple[list[str], dict[str, str], subprocess.Popen[str]]] = []

    def __enter__(self) -> Ahead:
        try:
            for index in range(0 if self._crew is None else self._crew.count):
                assert self._crew is not None
                self._begin(self._crew.command(), environment_of(self._crew, index, visible_cards()))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def end(self) -> None:
        """End those that nobody has taken."""
        while self._waiting:
            _end(self._waiting.pop()[2])

    def take(self, command: Sequence[str], changes: Mapping[str, str]) -> subprocess.Popen[str] | None:
        """A process with this command line and these changes to the environment, let go; None if there is none."""
        for one in self._waiting:
            if one[:2] == (command, changes):
                self._waiting.remove(one)
                if _let_go(one[2]):
                    return one[2]
                _end(one[2])
                return None
        return None

    def _begin(self, command: list[str], changes: dict[str, str]) -> None:
        process = subprocess.Popen(
            command,
            env=os.environ | changes | {AHEAD: "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._waiting.append((command, changes, process))


def wait_until_wanted() -> None:
    """In a worker that was started ahead: import, then wait; without a launcher's word the process ends."""
    if os.environ.pop(AHEAD, None) is None:
        return
    die_with_launcher()
    for heavy in ("worker", "keeper"):
        importlib.import_module(f"statelab.sweeps.{heavy}")
    if not sys.stdin.readline():
        sys.exit(0)


def _let_go(process: subprocess.Popen[str]) -> bool:
    assert process.stdin is not None
    try:
        with process.stdin:
            process.stdin.write("go\n")
    except OSError:  # it has died
        return False
    return True


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with process:  # closes its pipes and waits
        pass
