"""A worker: claims the waiting lanes of a cell, trains them as a population, records and tells each."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from statelab.models.checkpoint import load_checkpoint, save_checkpoint, select_lanes
from statelab.models.evaluation import Measurement
from statelab.models.learner import Learner
from statelab.models.population import is_out_of_memory
from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell
from statelab.sweeps.errors import DeviceLost
from statelab.sweeps.fitting import in_fitting_parts
from statelab.sweeps.lease import Heartbeat
from statelab.sweeps.loggers import LaneLoggers
from statelab.sweeps.populations import Populations
from statelab.sweeps.progress import Progress
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.results import count_solved, curve_point, lane_result, lane_spec
from statelab.sweeps.run import fit
from statelab.sweeps.spec import LoggerSpec
from statelab.sweeps.stop import Interrupted, StopSignals
from statelab.sweeps.study import Ledger

MAX_LANES = 64
POLL_SECONDS = 2.0


@dataclass
class Worker:
    """Trains what waits in a study's ledger, population by population.

    `more`, asked where nothing waits, gives the cells that the results so far ask for; with `wait` the worker stays
    while other workers hold lanes: for what may follow on them, or fall back to the queue. `crew` is how many workers
    have been started together, which some of them may not have said yet.
    """

    folder: Path
    ledger: Ledger
    cells: Sequence[Cell]
    device: torch.device
    stop: StopSignals
    max_lanes: int = MAX_LANES
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))  # noqa: T201
    retries: int = 1
    loggers: Sequence[LoggerSpec] = ()
    more: Callable[[], Sequence[Cell]] | None = None
    wait: bool = False
    crew: int = 1

    def __post_init__(self) -> None:
        self._populations = Populations(self.folder)
        self._told_of_waiting = False

    def work(self) -> None:
        """Train until no lane waits. Raises Interrupted if asked to stop; its lanes go back to the queue."""
        self.ledger.arrive()
        with Heartbeat(self.ledger.beat, self.say):
            self._work()
        self.ledger.leave()

    def _work(self) -> None:
        # On cores a population takes the time of its lanes one by one: nothing is gained by cutting the last ones.
        crew = self.crew if self.device.type == "cuda" else None
        while True:
            self.stop.check()
            claimed = self.ledger.claim(self.cells, self.max_lanes, self._populations.groups(), crew)
            if claimed is None:
                if self._is_done():
                    return
                continue
            cell, lanes = claimed
            try:
                self._train_claimed(cell, lanes)
            except BaseException:
                self._give_back(cell, lanes)
                raise

    def _is_done(self) -> bool:
        if self.more is not None:
            before = {cell.lane_id(lane) for cell in self.cells for lane in cell.lanes}
            self.cells = self.more()
            if {cell.lane_id(lane) for cell in self.cells for lane in cell.lanes} - before:
                return False
        counts = self.ledger.counts(cell.lane_id(lane) for cell in self.cells for lane in cell.lanes)
        if counts["waiting"]:
            return False
        if not counts["running"] or not self.wait:
            self._populations.clean()
            return True
        if not self._told_of_waiting:
            self.say(f"nothing waits; {counts['running']} lanes are with other workers: waiting for them")
            self._told_of_waiting = True
        time.sleep(POLL_SECONDS)
        return False

    def _give_back(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        ids = [cell.lane_id(lane) for lane in lanes]
        self.ledger.release(i for i in ids if not LaneFolder(self.folder, i).finished())

    def _train_claimed(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        by_id = {cell.lane_id(lane): lane for lane in cell.lanes}
        left = {cell.lane_id(lane) for lane in lanes}
        for ids in self._populations.groups():
            # All of a checkpoint's lanes go on together, recorded ones too: a population's rounding is its own.
            # Not so where another worker holds some of them.
            mine = left & set(ids)
            others = [i for i in ids if i not in left and not LaneFolder(self.folder, i).finished()]
            if mine and not others and set(ids) <= by_id.keys():
                self._try(cell, [by_id[lane_id] for lane_id in ids])
                left -= mine
        rest = [lane for lane in lanes if cell.lane_id(lane) in left]
        for part in in_fitting_parts(cell, rest, self.device, self.say):
            self._try(cell, part)

    def _try(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        """Train a population; an error of its own fails its lanes and not the worker."""
        try:
            self._train(cell, lanes)
        except (Interrupted, OSError, MemoryError):
            raise
        except Exception as error:
            self._fail(cell, lanes, error)
            if isinstance(error, torch.AcceleratorError):
                raise DeviceLost(
                    f"{cell.label}: an operation has left {self.device} in an error state, in which nothing more can "
                    "be done by this process; what was finished is recorded, and the same command goes on"
                ) from error

    def _fail(self, cell: Cell, lanes: Sequence[Lane], error: Exception) -> None:
        folders = [LaneFolder(self.folder, cell.lane_id(lane)) for lane in lanes]
        open_lanes = [folder for folder in folders if not folder.finished()]
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        for folder in open_lanes:
            folder.path.mkdir(parents=True, exist_ok=True)
            (folder.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        self._populations.forget([cell.lane_id(lane) for lane in lanes])
        again = self.ledger.fail([folder.id for folder in open_lanes], text, self.retries)
        then = f"{again} of them will be tried again, each alone" if again else "not tried again"
        self.say(f"{cell.label}: {len(open_lanes)} lanes failed ({then}): {text}")

    def _train(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        try:
            self._train_once(cell, lanes)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(lanes) == 1:
                raise MemoryError(
                    f"{cell.label}: one lane alone does not fit into the memory of {self.device}: "
                    "use a smaller batch, length or width"
                ) from None
        self._train_halves(cell, lanes)

    def _train_halves(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        half = (len(lanes) + 1) // 2
        if self.max_lanes > half:
            self.say(
                f"{cell.label}: {len(lanes)} lanes do not fit into memory; going on with {half} at a time"
            )
            self.max_lanes = half
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        parts = [range(half), range(half, len(lanes))]
        halves = [[lanes[index] for index in part] for part in parts]
        whole = [cell.lane_id(lane) for lane in lanes]
        if (checkpoint := self._read(whole)) is not None:
            for part, ids in zip(parts, ([cell.lane_id(lane) for lane in h] for h in halves), strict=True):
                save_checkpoint(select_lanes(checkpoint, part), self._populations.path(ids))
            self._populations.forget(whole)
        for lanes_of_half in halves:
            self._train(cell, lanes_of_half)

    def _read(self, lane_ids: Sequence[str]) -> dict[str, Any] | None:
        path = self._populations.path(lane_ids)
        if not path.exists():
            return None
        try:
            found = load_checkpoint(path)
            if found["statelab"]["lane_ids"] == list(lane_ids):
                return found
            reason = f"{path} is of other lanes"
        except (ValueError, KeyError, TypeError) as error:
            reason = str(error)
        self.say(f"{reason}: it is left out, and its lanes start again")
        path.unlink(missing_ok=True)
        return None

    def _train_once(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        learner = Learner(cell.task, cell.model, lanes, cell.training, cell.evaluation)
        ids = learner.lane_ids = [cell.lane_id(lane) for lane in lanes]
        folders = [LaneFolder(self.folder, lane_id) for lane_id in ids]
        writing = [(index, f) for index, f in enumerate(folders) if not f.finished()]
        before = self._read(ids)
        kept: dict[str, Any] = before["statelab"] if before else {"evaluations": [], "steps_done": 0}
        points = [Measurement(**plain) for plain in kept["evaluations"]]
        specs = {index: lane_spec(cell, lanes[index]) for index, _ in writing}
        for index, folder in writing:
            folder.start(specs[index], [curve_point(point, index) for point in points])
        progress = Progress(cell.label, len(lanes), cell.training.steps, kept["steps_done"])
        loggers = LaneLoggers(self.folder, self.loggers, {ids[index]: spec for index, spec in specs.items()})

        def evaluated(measurement: Measurement) -> None:
            for index, folder in writing:
                folder.add_point(point := curve_point(measurement, index))
                loggers.log(folder.id, point)
            diverged = int((learner.diverged_at_R >= 0).sum())
            progress.evaluated(count_solved(measurement, cell.threshold), diverged)

        try:
            fit(
                learner, self.device, stop=self.stop, progress=progress,
                checkpoint=self._populations.path(ids), resume=before, on_evaluation=evaluated,
            )  # fmt: skip
        finally:
            progress.close(learner.steps_done)
            loggers.close()
        for index, folder in writing:
            result = lane_result(cell, learner, index)
            folder.commit(result)
            self.ledger.tell(folder.id, result["row"]["accuracy"])
        self._populations.forget(ids)
