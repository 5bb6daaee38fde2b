"""From a spec to a finished study: folder, ledger, worker, report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from statelab.sweeps.cells import Cell, cells_of
from statelab.sweeps.errors import UserError
from statelab.sweeps.pool import Pool, cores, die_with_launcher
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import lane_folders, write_atomically
from statelab.sweeps.spec import Spec
from statelab.sweeps.stop import StopSignals

if TYPE_CHECKING:
    import torch

    from statelab.analysis.report import Report
    from statelab.sweeps.study import Ledger


def run_study(
    spec: Spec, runs: Path, *, device: str = "auto", max_lanes: int = 64, workers: int = 0
) -> Report:
    """Run what is missing of a study and write its report; prints as it goes.

    `workers` is how many processes train at once; 0 is one for each graphics card, or for each core where there
    is work for so many. Raises Interrupted if stopped by a signal, UserError where what was asked cannot be done.
    """
    from statelab.analysis.report import write_report

    folder = runs / spec.name
    with StopSignals() as stop:
        cells, chosen = _prepare(spec, device)
        _keep_spec(folder, spec, cells)
        ledger = open_ledger(folder, spec.name)
        waiting = ledger.sync(cells)
        count = workers or _workers_for(ledger.cells_waiting(cells), chosen)
        total = sum(len(cell.lanes) for cell in cells)
        _say(
            f"{spec.name}: {len(cells)} cells, {total} lanes, {waiting} to run on {chosen}"
            + (f" with {count} workers" if waiting and count > 1 else "")
        )
        stop.check()
        if count > 1:
            Pool(folder, count, chosen.type, max_lanes, stop).run()
        else:
            _work(folder, ledger, cells, chosen, stop, max_lanes)
        stop.check()
    running = ledger.counts([cell.lane_id(lane) for cell in cells for lane in cell.lanes])["running"]
    if running:
        _say(f"{running} lanes are being run by another worker; the report has those that are finished")
    report = write_report(folder)
    print(report.text)  # noqa: T201
    for path in report.files.values():
        if path.suffix == ".png":
            print(f"figure: {path}")  # noqa: T201
    return report


def work_on(folder: Path, device: str, max_lanes: int) -> None:
    """Be one worker of the study in `folder`: train what waits there, beside whatever other workers there are.

    Raises Interrupted if stopped by a signal, UserError where there is no study or it cannot be run here.
    """
    die_with_launcher()
    spec = kept_spec(folder)
    with StopSignals() as stop:
        cells, chosen = _prepare(spec, device)
        ledger = open_ledger(folder, spec.name)
        ledger.sync(cells)
        _work(folder, ledger, cells, chosen, stop, max_lanes)


def kept_spec(folder: Path) -> Spec:
    """The spec that a study's folder was last run with. Raises UserError where there is none."""
    try:
        kept = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        return parse_spec(kept["spec"], str(folder / "study.json"))
    except FileNotFoundError:
        raise UserError(
            f"{folder} is no study: it has no study.json; start one with statelab run SPEC"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}/study.json cannot be read ({error}); statelab run SPEC writes it anew"
        ) from None


def open_ledger(folder: Path, name: str) -> Ledger:
    """The study's ledger; says so if it had to be made anew."""
    from statelab.sweeps.study import Ledger

    ledger = Ledger(folder, name)
    if ledger.rebuilt:
        _say(f"{folder}/journal.log could not be read; it was set aside and made anew from the records")
    return ledger


def _work(
    folder: Path,
    ledger: Ledger,
    cells: tuple[Cell, ...],
    device: torch.device,
    stop: StopSignals,
    max_lanes: int,
) -> None:
    from statelab.sweeps.worker import Worker

    Worker(folder, ledger, cells, device, stop, max_lanes).work()


def _prepare(spec: Spec, device: str) -> tuple[tuple[Cell, ...], torch.device]:
    from statelab.models.arithmetic import check_arithmetic
    from statelab.sweeps.run import pick_device

    cells = cells_of(spec)
    try:
        chosen = pick_device(device)
        check_arithmetic(spec.training.arithmetic, chosen)
        try_models(cells)
    except ValueError as error:
        raise UserError(str(error)) from None
    return cells, chosen


def _workers_for(cells: int, device: torch.device) -> int:
    import torch

    places = torch.cuda.device_count() if device.type == "cuda" else cores()
    return max(1, min(cells, places))


def try_models(cells: tuple[Cell, ...]) -> None:
    """Build each model once, so that a layer that cannot be built is told before anything is written.

    Raises ValueError with a sentence.
    """
    import torch

    from statelab.models.backbone import Backbone

    for cell in {cell.model_label: cell for cell in cells}.values():
        with torch.random.fork_rng(devices=[]):
            Backbone(cell.model, cell.task.vocab_size)


def _keep_spec(folder: Path, spec: Spec, cells: tuple[Cell, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ids = [cell.lane_id(lane) for cell in cells for lane in cell.lanes]
    kept = {"name": spec.name, "spec": spec.model_dump(mode="json"), "lanes": ids}
    write_atomically(folder / "study.json", json.dumps(kept, indent=2))
    earlier = {lane.id for lane in lane_folders(folder) if lane.finished()} - set(ids)
    if earlier:
        _say(
            f"{len(earlier)} finished lanes in {folder} have other settings than this spec: "
            "they are kept there and left out of the tables"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
