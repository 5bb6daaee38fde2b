"""A PostgreSQL of a test's own: a cluster in a temporary folder, on a free port of this machine alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"


def missing() -> str | None:
    """Why there can be no PostgreSQL here, or None."""
    if _program("initdb") is None:
        return "needs PostgreSQL's initdb (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "needs psycopg: pip install 'statelab[postgres]'"
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a database that lives as long as the block."""
    with tempfile.TemporaryDirectory(prefix="statelab-pg-") as made:
        folder = Path(made)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, USER, USER)
        data = folder / "data"
        _run("initdb", "-D", data, "-U", "statelab", "-A", "trust", "-N", "-E", "UTF8")
        port = free_port()
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        _run("pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield f"postgresql://statelab@127.0.0.1:{port}/postgres"
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _run(name: str, *words: str | Path) -> None:
    program = _program(name)
    assert program is not None
    done = subprocess.run(
        [program, *map(str, words)],
        user=USER if os.geteuid() == 0 else None,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, f"{name}: {done.stderr!r}"


def _program(name: str) -> str | None:
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(kept[-1]) if kept else shutil.which(name)


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
