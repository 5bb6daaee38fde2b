"""The ledger in optuna-dashboard, as a browser asks for it: names that a person understands, on this machine alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statelab.sweeps.dashboard import serve
from statelab.sweeps.errors import UserError
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.read import parse_spec
from tests.sweeps.database import free_port, missing
from tests.sweeps.specs import small
from tests.torture.storm import storage

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served(study: Path, url: str | None, port: int) -> Iterator[str]:
    """The address of the dashboard of a study, for the time of the block."""
    command = [sys.executable, "-m", "statelab.sweeps.cli", "dashboard", str(study), "--port", str(port)]
    server = subprocess.Popen(
        command + ([] if url is None else ["--storage", url]),
        cwd=study, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        yield server.stderr.readline().split()[0]
    finally:
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=60)[1] == ""
        assert server.returncode == 0


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", ["journal", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_person_finds_tasks_models_seeds_and_rates(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna_dashboard", reason="needs optuna-dashboard: pip install 'statelab[dashboard]'"
    )
    if kind == "postgres" and (reason := missing()):
        pytest.skip(reason)
    with storage(kind) as url:
        keeper = Keeper(parse_spec(small(), ""), tmp_path / "small", url, lambda text: None)
        keeper.start()
        keeper.ledger.close()
        port = free_port()
        with served(tmp_path / "small", url, port) as address:
            assert address == f"http://127.0.0.1:{port}/"
            (listed,) = get(f"{address}api/studies")["study_summaries"]
            study = get(f"{address}api/studies/{listed['study_id']}")
    assert listed["study_name"].startswith("small-")
    assert study["objective_names"] == ["final accuracy"]
    assert len(study["trials"]) == 12
    trial = study["trials"][0]
    told = {item["key"]: item["value"] for item in trial["user_attrs"]}
    chosen = {item["name"]: item["param_external_value"] for item in trial["params"]}
    assert (told["task"], told["purpose"]) == ("parity", "report")
    assert told["model"] in ("GRU", "Mamba-2")
    assert chosen.keys() == {"learning_rate", "seed"}
    assert {item["key"] for item in study["user_attrs"]} >= {"a trial is"}


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna_dashboard", reason="needs optuna-dashboard: pip install 'statelab[dashboard]'"
    )
    Keeper(parse_spec(small(), ""), tmp_path, None, lambda text: None).start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=f"port {port} of 127.0.0.1 is taken: give another one with --port"
        ):
            serve(tmp_path, "127.0.0.1", port, None)
