"""Lightning loggers named in a spec: one run a lane, off by default, and never in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from statelab.sweeps.errors import UserError
from statelab.sweeps.loggers import LaneLoggers, check_loggers
from statelab.sweeps.spec import LoggerSpec

LANES: dict[str, dict[str, Any]] = {
    lane_id: {
        "task_label": "parity",
        "model_label": "a/b",
        "seed": seed,
        "optimiser": {"learning_rate": 1e-3},
    }
    for seed, lane_id in enumerate(("abc", "def"))
}


class Failing:
    """A logger whose service is down."""

    def __init__(self) -> None:
        self.asked = 0

    def log_hyperparams(self, settings: dict[str, Any]) -> None:
        assert settings["optimiser.learning_rate"] == 1e-3

    def log_metrics(self, numbers: dict[str, float], step: int) -> None:
        raise ConnectionError("no network")


def test_each_lane_has_a_run_of_its_own(tmp_path: Path) -> None:
    loggers = LaneLoggers(tmp_path, [LoggerSpec(logger="CSVLogger")], LANES)
    for step in (5, 10):
        loggers.log("abc", {"step": step, "accuracy": step / 10, "loss": 1.0})
    loggers.log("def", {"step": 5, "accuracy": 0.25, "loss": 1.0})
    loggers.close()
    one, two = sorted(tmp_path.glob("loggers/*/*/metrics.csv"))
    assert one.parent.parent.name == "parity-a_b-lr0.001-seed0"
    assert one.parent.name == "abc"
    assert pd.read_csv(one)[["step", "accuracy"]].to_numpy().tolist() == [[5, 0.5], [10, 1.0]]
    assert len(pd.read_csv(two)) == 1


def test_a_logger_that_fails_is_left_out_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loggers = LaneLoggers(tmp_path, [LoggerSpec(logger=f"{__name__}:Failing")], LANES)
    for lane in ("abc", "def", "abc"):
        loggers.log(lane, {"step": 5, "accuracy": 0.5})
    loggers.close()
    assert capsys.readouterr().err.count("no network") == 1


@pytest.mark.parametrize(
    ("logger", "answer"),
    [
        ({"logger": "TensorBordLogger"}, "Did you mean 'TensorBoardLogger'"),
        ({"logger": "nowhere.at_all:Logger"}, "cannot import 'nowhere.at_all'"),
        ({"logger": "CSVLogger", "flush_every": 3}, "flush_every"),
    ],
)
def test_a_logger_that_cannot_be_made_is_told_beforehand(logger: dict[str, Any], answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        check_loggers([LoggerSpec(**logger)])
