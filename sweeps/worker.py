"""A worker: claims the waiting lanes of a cell, trains them as a population, records and tells each."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from statelab.models.checkpoint import load_checkpoint, save_checkpoint, select_lanes
from statelab.models.evaluation import Measurement
from statelab.models.learner import Learner
from statelab.models.population import is_out_of_memory
from statelab.models.settings import Lane
from statelab.sweeps.cells import Cell
from statelab.sweeps.progress import Progress
from statelab.sweeps.record import LaneFolder
from statelab.sweeps.results import count_solved, curve_point, lane_result, lane_spec
from statelab.sweeps.run import fit
from statelab.sweeps.stop import StopSignals
from statelab.sweeps.study import Heartbeat, Ledger

MAX_LANES = 64


@dataclass
class Worker:
    """Trains what waits in a study's ledger, population by population."""

    folder: Path
    ledger: Ledger
    cells: Sequence[Cell]
    device: torch.device
    stop: StopSignals
    max_lanes: int = MAX_LANES
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))  # noqa: T201

    def work(self) -> None:
        """Train until no lane waits. Raises Interrupted if asked to stop; its lanes go back to the queue."""
        with Heartbeat(self.ledger):
            while True:
                self.stop.check()
                claimed = self.ledger.claim(self.cells, self.max_lanes)
                if claimed is None:
                    return
                cell, lanes = claimed
                try:
                    self._train_claimed(cell, lanes)
                except BaseException:
                    open_lanes = [cell.lane_id(lane) for lane in lanes]
                    self.ledger.release(i for i in open_lanes if not LaneFolder(self.folder, i).finished())
                    raise

    def _train_claimed(self, cell: Cell, lanes: Sequence[Lane]) -> None:
        by_id = {cell.lane_id(lane): lane for lane in cell.lanes}
        left = {cell.lane_id(lane) for lane in lanes}
        for path in sorted((self.folder / "checkpoints").glob("*.ckpt")):
            ids = self._lanes_of_checkpoint(path)
            # All of a checkpoint's lanes go on together, recorded ones too: a population's rounding is its own.
            if left & set(ids) and set(ids) <= by_id.keys():
                self._train(cell, [by_id[lane_id] for lane_id in ids], path)
                left -= set(ids)
        rest = [lane for lane in lanes if cell.lane_id(lane) in left]
        if rest:
            self._train(cell, rest, self._checkpoint_path(cell, rest[0]))

    def _lanes_of_checkpoint(self, path: Path) -> list[str]:
        try:
            return list(load_checkpoint(path)["statelab"]["lane_ids"] or [])
        except ValueError as error:
            self.say(f"{error}: it is left out, and its lanes start again")
            path.unlink(missing_ok=True)
            return []

    def _train(self, cell: Cell, lanes: Sequence[Lane], checkpoint: Path) -> None:
        try:
            self._train_once(cell, lanes, checkpoint)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(lanes) == 1:
                raise MemoryError(
                    f"{cell.label}: one lane alone does not fit into the memory of {self.device}: "
                    "use a smaller batch, length or width"
                ) from None
        self._train_halves(cell, lanes, checkpoint)

    def _train_halves(self, cell: Cell, lanes: Sequence[Lane], checkpoint: Path) -> None:
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
        paths = [self._checkpoint_path(cell, lanes[part[0]]) for part in parts]
        if checkpoint.exists():
            whole = load_checkpoint(checkpoint)
            # The second half first: the first one's file takes the place of the whole's.
            for part, path in reversed(list(zip(parts, paths, strict=True))):
                save_checkpoint(select_lanes(whole, part), path)
        for part, path in zip(parts, paths, strict=True):
            self._train(cell, [lanes[index] for index in part], path)

    def _checkpoint_path(self, cell: Cell, first: Lane) -> Path:
        return self.folder / "checkpoints" / f"{cell.lane_id(first)}.ckpt"

    def _train_once(self, cell: Cell, lanes: Sequence[Lane], checkpoint: Path) -> None:
        learner = Learner(cell.task, cell.model, lanes, cell.training, cell.evaluation)
        learner.lane_ids = [cell.lane_id(lane) for lane in lanes]
        folders = [LaneFolder(self.folder, lane_id) for lane_id in learner.lane_ids]
        writing = [(index, f) for index, f in enumerate(folders) if not f.finished()]
        before = load_checkpoint(checkpoint)["statelab"] if checkpoint.exists() else None
        points = [Measurement(**plain) for plain in before["evaluations"]] if before else []
        for index, folder in writing:
            folder.start(lane_spec(cell, lanes[index]), [curve_point(point, index) for point in points])
        progress = Progress(
            cell.label, len(lanes), cell.training.steps, before["steps_done"] if before else 0
        )

        def evaluated(measurement: Measurement) -> None:
            for index, folder in writing:
                folder.add_point(curve_point(measurement, index))
            diverged = int((learner.diverged_at_R >= 0).sum())
            progress.evaluated(count_solved(measurement, cell.threshold), diverged)

        try:
            fit(
                learner, self.device, stop=self.stop, progress=progress, checkpoint=checkpoint,
                on_evaluation=evaluated,
            )  # fmt: skip
        finally:
            progress.close(learner.steps_done)
        for index, folder in writing:
            result = lane_result(cell, learner, index)
            folder.commit(result)
            self.ledger.tell(folder.id, result["row"]["accuracy"])
        checkpoint.unlink(missing_ok=True)
