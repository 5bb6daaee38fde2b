"""From a spec to a finished study: folder, ledger, workers, report."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelab.sweeps.ahead import Ahead, likely_crew, most_lanes_of, usual_workers
from statelab.sweeps.cells import Cell, cells_of
from statelab.sweeps.engine import LOCAL, Crew, Engine, engine_of
from statelab.sweeps.errors import LanesFailed, UserError
from statelab.sweeps.pool import WorkerFailed, crew_size, die_with_launcher
from statelab.sweeps.read import parse_spec
from statelab.sweeps.readable import read_study
from statelab.sweeps.spec import Spec
from statelab.sweeps.stop import StopSignals

if TYPE_CHECKING:
    import torch

    from statelab.analysis.report import Report
    from statelab.sweeps.keeper import Keeper

STORAGE_VARIABLE = "STATELAB_STORAGE"


def run_study(spec: Spec, runs: Path, **how: Any) -> Report:
    """Run what is missing of a study, as `train_study` does, and write its report; prints as it goes."""
    keeper = train_study(spec, runs, **how)
    from statelab.analysis.report import write_report  # its plots take a second to import

    report = write_report(keeper.folder)
    print(report.text)  # noqa: T201
    print(f"page: {report.files['report.html']}")  # noqa: T201
    tell_what_is_open(keeper)
    return report


def train_study(
    spec: Spec,
    runs: Path,
    *,
    device: str = "auto",
    max_lanes: int = 64,
    workers: int = 0,
    engine: Engine = LOCAL,
    storage: str | None = None,
    retry_failed: bool = False,
) -> Keeper:
    """Train the lanes that are missing of a study.

    `workers` is how many processes train at once; 0 is one for each graphics card, or for each core where there
    is work for so many. Raises Interrupted if stopped by a signal, UserError where what was asked cannot be done.
    """
    folder = runs / spec.name
    here = engine.kind == "local"
    url = storage_of(folder, storage)
    with (
        StopSignals() as stop,
        Ahead(likely_crew(spec, folder, device, max_lanes, workers, url) if here else None) as ahead,
    ):
        start = engine_of(engine, ahead)
        from statelab.sweeps.keeper import Keeper

        cells, chosen = _prepare(spec, device, here=here)
        stop.check()
        keeper = Keeper(spec, folder, url, _say)
        waiting = keeper.start(retry_failed=retry_failed)
        ready = keeper.ledger.cells_waiting(keeper.cells())
        count = workers or (usual_workers(ready, waiting, _cards(chosen)) if here else 1)
        assert keeper.plan is not None
        count = min(count, max(1, most_lanes_of(spec, keeper.plan, waiting)))
        _say(_first_line(keeper, len(cells), waiting, chosen, count if waiting else 1))
        stop.check()
        if waiting and (count > 1 or not here):
            where = chosen.type if here else device
            share = max_lanes if here else _share(max_lanes, waiting, count, chosen)
            start(Crew(folder, count, where, share, keeper.url), stop)
        else:
            ahead.end()
            _work(keeper, chosen, stop, max_lanes, wait=False)
        stop.check()
        keeper.cells()
    return keeper


def work_on(
    study: Path | Spec,
    runs: Path,
    device: str,
    max_lanes: int,
    storage: str | None = None,
    *,
    wait: bool = True,
) -> None:
    """Be one worker of a study: train what waits there, beside whatever other workers there are.

    The study is its folder, or the spec of one whose ledger lies in a database. With `wait` the worker ends when
    no lane is left, else as soon as none waits. Raises Interrupted if stopped by a signal, UserError where there
    is no study or it cannot be run here.
    """
    from statelab.sweeps.keeper import Keeper

    die_with_launcher()
    folder = runs / study.name if isinstance(study, Spec) else study
    spec = study if isinstance(study, Spec) else kept_spec(folder)
    with StopSignals() as stop:
        _, chosen = _prepare(spec, device)
        keeper = Keeper(spec, folder, storage_of(folder, storage), _say)
        keeper.cells()
        _work(keeper, chosen, stop, max_lanes, wait=wait)


def kept_spec(folder: Path) -> Spec:
    """The spec that a study's folder was last run with. Raises UserError where there is none."""
    kept = read_study(folder)
    if kept is None:
        raise UserError(f"{folder} is no study: it has no study.json; start one with statelab run SPEC")
    if not isinstance(kept.get("spec"), dict):
        raise UserError(f"{folder}/study.json has no spec; statelab run SPEC writes it anew")
    return parse_spec(kept["spec"], str(folder / "study.json"))


def storage_of(folder: Path, storage: str | None) -> str | None:
    """The storage asked for, else the environment's, else the one that the study was last run with."""
    if found := storage or os.environ.get(STORAGE_VARIABLE):
        return found
    try:
        kept = (read_study(folder) or {}).get("storage")
    except UserError:
        return None
    return kept if isinstance(kept, str) else None


def _work(keeper: Keeper, device: torch.device, stop: StopSignals, max_lanes: int, *, wait: bool) -> None:
    from statelab.sweeps.worker import Worker

    assert keeper.plan is not None
    Worker(
        keeper.folder, keeper.ledger, keeper.plan.cells, device, stop, max_lanes,
        say=_say, retries=keeper.spec.retries, loggers=keeper.spec.loggers, more=keeper.cells, wait=wait,
        crew=crew_size(),
    ).work()  # fmt: skip


def _prepare(spec: Spec, device: str, *, here: bool = True) -> tuple[tuple[Cell, ...], torch.device]:
    from statelab.models.arithmetic import check_arithmetic
    from statelab.sweeps.device import pick_device
    from statelab.sweeps.loggers import check_loggers

    cells = cells_of(spec)
    try:
        # Workers elsewhere may have the cards that the launcher has not.
        chosen = pick_device(device) if here or device == "auto" else pick_device("cpu")
        if here:
            check_arithmetic(spec.training.arithmetic, chosen)
        try_models(cells)
    except ValueError as error:
        raise UserError(str(error)) from None
    check_loggers(spec.loggers)
    return cells, chosen


def _first_line(keeper: Keeper, cells: int, waiting: int, device: torch.device, count: int) -> str:
    return (
        f"{keeper.spec.name}: {cells} cells, {len(keeper.lane_ids())} lanes, {waiting} to run on {device}"
        + (f" with {count} workers" if count > 1 else "")
    )


def tell_what_is_open(keeper: Keeper) -> None:
    """Say what other workers still run.

    Raises WorkerFailed where lanes wait that nobody trains, LanesFailed where some have failed as often as they may.
    """
    counts = keeper.ledger.counts(keeper.lane_ids())
    running = counts["running"]
    if counts["waiting"]:
        raise WorkerFailed(
            f"{counts['waiting']} lanes still wait, their workers are gone; the same command goes on"
        )
    if running:
        _say(f"{running} lanes are being run by another worker; the report has those that are finished")
    failed = keeper.failed()
    if failed:
        (error, count), *_ = Counter(failed.values()).most_common(1)
        where = next(lane_id for lane_id, said in failed.items() if said == error)
        raise LanesFailed(
            f"{len(failed)} lanes failed, {count} of them with {error} ({keeper.folder}/lanes/{where}/error.txt); "
            "once mended, statelab run SPEC --retry-failed tries them again"
        )


def _cards(device: torch.device) -> int:
    import torch

    return torch.cuda.device_count() if device.type == "cuda" else 0


def _share(max_lanes: int, lanes: int, workers: int, device: torch.device) -> int:
    # Jobs and actors begin when they can: the first one does not know of the others, as a pool's workers do.
    return min(max_lanes, max(1, -(-lanes // workers))) if device.type == "cuda" else max_lanes


def sizes_of(spec: Spec, device: str, max_lanes: int, *, timed: bool) -> Iterator[str]:
    """Lines of parameters, state and memory of each cell and, by a few timed steps, of the time it takes.

    Raises UserError.
    """
    from statelab.sweeps.sizes import size_lines

    cells, chosen = _prepare(spec, device)
    yield from size_lines(cells, max_lanes, chosen, timed)


def try_models(cells: tuple[Cell, ...]) -> None:
    """Build each model once, so that a layer that cannot be built is told before anything is written.

    Raises ValueError with a sentence.
    """
    import torch

    from statelab.models.backbone import Backbone

    for cell in {cell.model_label: cell for cell in cells}.values():
        with torch.random.fork_rng(devices=[]):
            Backbone(cell.model, cell.task.vocab_size)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
