"""The study's ledger in a browser, by optuna-dashboard."""

from __future__ import annotations

import errno
import sys
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import need
from statelab.sweeps.launch import kept_spec, storage_of
from statelab.sweeps.storage import Storage


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A page asks again every few seconds: nobody wants to read that."""


def serve(folder: Path, host: str, port: int, storage: str | None) -> None:
    """Serve the ledger of the study in `folder` until Ctrl-C; on this machine alone unless `host` says else.

    Raises UserError where there is no study, or its port is taken.
    """
    dashboard = need("optuna_dashboard", "dashboard")
    kept_spec(folder)
    where = Storage(folder, storage_of(folder, storage))
    server = _listening(host, port, dashboard.wsgi(where.optuna))
    # In a thread of its own: an interrupt in the middle of an answer would be taken for the answer's own failure.
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    print(f"http://{host}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)  # noqa: T201
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    finally:
        server.server_close()
        where.close()


def _listening(host: str, port: int, app: Any) -> WSGIServer:
    try:
        return make_server(host, port, app, handler_class=_Quiet)
    except OSError as error:
        taken = (
            "is taken: give another one with --port" if error.errno == errno.EADDRINUSE else error.strerror
        )
        raise UserError(f"dashboard: port {port} of {host} {taken}") from None
