"""What a job of a cluster runs: one worker, as a process of its own that ends as every worker does when the job must.

Run as `python -m statelab.sweeps.job COMMAND …`. SIGTERM lets the worker leave its checkpoint; SIGUSR2, which comes
before a time limit or a preemption, does so and asks for the job to be run again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from statelab.sweeps.pool import MAX_DEATHS

RUN_AGAIN = 144
"""The exit code by which submitit's local executor is asked to run a job again."""


class Job:
    """Runs a worker, and another one in its place where it is killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._received: int | None = None

    def run(self) -> int:
        """The worker's exit code, once it has ended by itself or been stopped."""
        for signum in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(signum, self._stop)
        code = -signal.SIGKILL
        for _ in range(MAX_DEATHS):
            self._process = subprocess.Popen(self._command, preexec_fn=_ignore_what_slurm_sends_to_all)
            if self._received is not None:  # between its start and this line
                self._process.terminate()
            code = self._process.wait()
            if code >= 0 or self._received is not None:
                break
        if self._received == signal.SIGUSR2 and code in (-signal.SIGTERM, 128 + signal.SIGTERM):
            return _run_again()
        return code if code >= 0 else 128 - code

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._received = signum
        if self._process is not None:
            self._process.terminate()


def _ignore_what_slurm_sends_to_all() -> None:
    # The worker would die of it before it could leave a checkpoint.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _run_again() -> int:
    if os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True, timeout=60)
    return RUN_AGAIN


if __name__ == "__main__":
    sys.exit(Job(sys.argv[1:]).run())
