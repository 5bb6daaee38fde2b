"""Launchers and workers as copies of a process that has everything imported: importing takes longer than the study.

What a killed process leaves behind is what one leaves that was started by its command line, and most kills hit work
instead of imports.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import statelab.sweeps.keeper
import statelab.sweeps.worker  # noqa: F401
from statelab.sweeps import cli, launch, pool, run

CLI = "statelab.sweeps.cli"
TORN = Path(__file__).parent / "torn/sitecustomize.py"
CHECKPOINT_SECONDS = 0.3
"""Between two checkpoints, so that kills find some, and find them being written."""


class Forked:
    """`python -m statelab.sweeps.cli …` in a copy of this process: as much of a Popen as a pool and a storm need.

    Its own workers are forked from it, as a pool's processes are its children. Its standard error is a pipe.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
        text: bool = True,
        start_new_session: bool = False,
    ) -> None:
        assert (stdout, stderr, text) == (subprocess.DEVNULL, subprocess.PIPE, True)
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be(command, env, cwd, writing, start_new_session)
        os.close(writing)
        self.stderr = os.fdopen(reading, encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired after so many seconds."""
        end = time.monotonic() + (1e9 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(CLI, timeout or 0.0)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for its end; nothing, and what it said on standard error, which may not fill a pipe."""
        self.wait(timeout)
        with self.stderr:
            return None, self.stderr.read()

    def send_signal(self, signum: int) -> None:
        """Send a signal to one that runs."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it where it runs."""
        self.send_signal(signal.SIGKILL)


def _be(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None, stderr: int, new_session: bool
) -> None:
    """Run the command line and end this process, whatever happens: the parent's own blocks are not left."""
    code = 1
    try:
        if new_session:
            os.setsid()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd or ".")
        sys.argv = ["statelab", *command[list(command).index(CLI) + 1 :]]
        if env.get("STATELAB_TORN"):
            runpy.run_path(str(TORN))
        with (
            mock.patch.object(run, "CHECKPOINT_SECONDS", CHECKPOINT_SECONDS),
            mock.patch.object(pool, "subprocess", _popen_that_forks()),
            mock.patch.object(launch, "likely_crew", return_value=None),  # it would import all anew
        ):
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _popen_that_forks() -> SimpleNamespace:
    return SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
