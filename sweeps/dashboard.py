"""The study's ledger in a browser, by optuna-dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

from statelab.sweeps.extras import need
from statelab.sweeps.launch import kept_spec, storage_of
from statelab.sweeps.storage import Storage


def serve(folder: Path, host: str, port: int, storage: str | None) -> None:
    """Serve the ledger of the study in `folder` until interrupted; on this machine alone unless `host` says else."""
    dashboard = need("optuna_dashboard", "dashboard")
    kept_spec(folder)
    where = Storage(folder, storage_of(folder, storage)).optuna
    print(f"http://{host}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)  # noqa: T201
    dashboard.run_server(where, host=host, port=port)
