"""Lightning loggers that a spec names, one run a lane: beside the records, never instead of them."""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from statelab.models.config import nearest
from statelab.sweeps.errors import UserError
from statelab.sweeps.spec import LoggerSpec

_HOME = "lightning.pytorch.loggers"


class LaneLoggers:
    """The loggers of a population's lanes. `lanes` has, for each lane's id, its resolved settings.

    A logger that fails, for want of a network or of room, is left out from then on and said so: training goes on.
    """

    def __init__(self, study: Path, specs: Sequence[LoggerSpec], lanes: Mapping[str, dict[str, Any]]) -> None:
        self._lanes: dict[str, list[Any]] = {lane_id: [] for lane_id in lanes}
        for spec in specs:
            for lane_id, settings in lanes.items():
                self._guarded(spec.logger, partial(self._open, study, spec, lane_id, settings))

    def log(self, lane_id: str, point: Mapping[str, Any]) -> None:
        """Log one evaluation of a lane."""
        numbers = {name: value for name, value in point.items() if name != "step"}
        for logger in list(self._lanes.get(lane_id, [])):
            self._guarded(type(logger).__name__, partial(logger.log_metrics, numbers, step=point["step"]))

    def close(self) -> None:
        """End every run."""
        for logger in [logger for loggers in self._lanes.values() for logger in loggers]:
            self._guarded(type(logger).__name__, partial(logger.finalize, "success"))

    def _open(self, study: Path, spec: LoggerSpec, lane_id: str, settings: dict[str, Any]) -> None:
        logger = make_logger(spec, study / "loggers", lane_id, settings)
        logger.log_hyperparams(_flat(settings))
        self._lanes[lane_id].append(logger)

    def _guarded(self, name: str, action: Callable[[], None]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                action()
        except Exception as error:  # of whatever kind a logger's service has
            self._lanes = {lane_id: [] for lane_id in self._lanes}
            text = f"logger {name} failed ({type(error).__name__}: {error}) and is left out; the records are complete"
            print(text, file=sys.stderr)  # noqa: T201


def make_logger(spec: LoggerSpec, folder: Path, lane_id: str, settings: Mapping[str, Any]) -> Any:
    """The logger of one lane, in `folder` where it writes files; its run is called by the lane's settings."""
    made = _class_of(spec.logger)
    takes = inspect.signature(made).parameters
    rate = settings.get("optimiser", {}).get("learning_rate")
    labels = (
        settings.get("task_label"),
        settings.get("model_label"),
        f"lr{rate}",
        f"seed{settings.get('seed')}",
    )
    name = "-".join(map(_word, labels))
    ours = {"save_dir": str(folder), "name": name, "run_name": name, "version": lane_id}
    return made(**{key: value for key, value in ours.items() if key in takes} | (spec.model_extra or {}))


def check_loggers(specs: Sequence[LoggerSpec]) -> None:
    """Raise UserError with a sentence where a logger of the spec cannot be made here."""
    for index, spec in enumerate(specs):
        try:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make_logger(spec, Path(folder), "lane", {})
        except UserError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"loggers[{index}]: {spec.logger} cannot be made: {reason}") from None


def _class_of(name: str) -> Any:
    module_name, _, class_name = name.rpartition(":")
    try:
        module = importlib.import_module(module_name or _HOME)
    except ImportError as error:
        raise UserError(f"logger {name!r}: cannot import {module_name!r} ({error})") from None
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not hasattr(found, "log_metrics"):
        known = [each for each in getattr(module, "__all__", []) if each.endswith("Logger")]
        raise UserError(
            f"logger {name!r}: {module.__name__} has no such logger; known: {', '.join(known)}."
            f"{nearest(class_name, known)}"
        )
    return found


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{before}{key}.") if isinstance(item, Mapping) else {f"{before}{key}": item}
    return flat


def _word(value: object) -> str:
    return "".join(c if c.isalnum() or c in "._" else "_" for c in str(value))
