"""How far a study is: its cells, what waits and runs, how fast it goes and how long it will take. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statelab.sweeps.cells import Cell
from statelab.sweeps.keeper import damaged, study_name
from statelab.sweeps.launch import kept_spec, storage_of
from statelab.sweeps.plan import Plan, make_plan
from statelab.sweeps.progress import duration
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.study import Ledger
from statelab.sweeps.trials import LaneState

KINDS = ("waiting", "running", "solved", "unsolved", "diverged", "failed")
RECENT_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Status:
    """Lanes of each cell by KINDS; lanes a minute over the last hour; seconds left, None where nothing tells."""

    name: str
    cells: tuple[tuple[str, Counter[str]], ...]
    lanes_a_minute: float | None
    seconds_left: float | None
    notes: tuple[str, ...]
    is_open: bool

    @property
    def total(self) -> Counter[str]:
        """All cells together."""
        return sum((counts for _, counts in self.cells), Counter[str]())

    def text(self) -> str:
        """As a table."""
        total = self.total
        finished = sum(total[kind] for kind in ("solved", "unsolved", "diverged"))
        head = f"{self.name}: {finished} of {total.total()} lanes finished, " + ", ".join(
            f"{total[kind]} {kind}" for kind in ("waiting", "running")
        )
        pace = []
        if self.lanes_a_minute is not None:
            pace.append(f"{self.lanes_a_minute:.3g} lanes a minute")
        if self.seconds_left is not None:
            pace.append(f"about {duration(self.seconds_left)} left")
        wide = max((len(label) for label, _ in self.cells), default=0)
        rows = [
            f"  {label:<{wide}}" + "".join(f"{counts[kind] or '·':>10}" for kind in KINDS)
            for label, counts in self.cells
        ]
        header = "  " + " " * wide + "".join(f"{kind:>10}" for kind in KINDS)
        return "\n".join([head, *([", ".join(pace)] if pace else []), "", header, *rows, *self.notes])


def status_of(folder: Path, storage: str | None = None) -> Status:
    """Where the study in `folder` stands. Raises UserError where there is none or its ledger cannot be reached."""
    spec = kept_spec(folder)
    ledger = Ledger(folder, study_name(spec), storage_of(folder, storage))
    states = ledger.states()
    ledger.close()
    plan = make_plan(spec, folder, [i for i, state in states.items() if state.state == "failed"])
    pace, left = _pace(folder, plan, states)
    notes = []
    if plan.is_open:
        notes.append("settings are still being chosen: report lanes follow")
    if broken := damaged(folder, [*plan.ids("report"), *plan.ids("selection")]):
        notes.append(
            f"{len(broken)} records cannot be read (lanes/{broken[0]}/result.json): statelab run makes them anew"
        )
    return Status(
        name=spec.name,
        cells=tuple((cell.label, _counts(folder, cell, states)) for cell in plan.cells),
        lanes_a_minute=None if pace is None else 60 * pace,
        seconds_left=left,
        notes=tuple(notes),
        is_open=plan.is_open,
    )


def _counts(folder: Path, cell: Cell, states: Mapping[str, LaneState]) -> Counter[str]:
    return Counter(_kind(folder, cell, cell.lane_id(lane), states) for lane in cell.lanes)


def _kind(folder: Path, cell: Cell, lane_id: str, states: Mapping[str, LaneState]) -> str:
    result = LaneFolder(folder, lane_id).result()
    if result is None:
        state = states.get(lane_id)
        return state.state if state is not None and state.state in KINDS else "waiting"
    row = result["row"]
    if row["status"] == "diverged":
        return "diverged"
    return "solved" if (row["accuracy"] or 0.0) >= cell.threshold else "unsolved"


def _pace(folder: Path, plan: Plan, states: Mapping[str, LaneState]) -> tuple[float | None, float | None]:
    """Lanes a second over what has lately been finished and what runs, and the seconds that the rest takes so."""
    now = time.time()
    done, open_work, first = 0.0, 0.0, now
    for lane_id, state, steps in _open_or_recent(plan, states, now):
        share = {"finished": 1.0, "waiting": 0.0}.get(state.state)
        share = _share(folder, lane_id, steps) if share is None else share
        done += share
        open_work += 1.0 - share
        first = min(first, now if state.began is None else state.began)
    running = any(state.state == "running" for state in states.values())
    pace = done / (now - first) if done and now > first else None
    return (pace, open_work / pace) if pace and running else (pace, None)


def _open_or_recent(
    plan: Plan, states: Mapping[str, LaneState], now: float
) -> Iterator[tuple[str, LaneState, int]]:
    for cell in plan.cells:
        for lane in cell.lanes:
            lane_id = cell.lane_id(lane)
            state = states.get(lane_id)
            if state is None or state.state == "failed":
                continue
            if state.state == "finished" and (state.ended is None or now - state.ended > RECENT_SECONDS):
                continue
            # One that was told from its record, as a ledger made anew tells it, took no time.
            if state.state != "finished" or state.began != state.ended:
                yield lane_id, state, cell.training.steps


def _share(folder: Path, lane_id: str, steps: int) -> float:
    curve: list[dict[str, Any]] = LaneFolder(folder, lane_id).curve()
    return min(1.0, curve[-1]["step"] / steps) if curve else 0.0


def watch_status(folder: Path, storage: str | None, seconds: float, show: Callable[[str], None]) -> None:
    """Show where the study stands every so many seconds, until nothing waits or runs or Ctrl-C ends it."""
    try:
        while True:
            status = status_of(folder, storage)
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            show(f"{clear}{status.text()}\n")
            if not status.total["waiting"] + status.total["running"] and not status.is_open:
                return
            time.sleep(seconds)
    except KeyboardInterrupt:
        return
