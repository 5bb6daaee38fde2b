"""Workers as jobs of a Slurm cluster, by submitit. They share the study's folder with the launcher.

submitit hands each job over as a file of its own making in `runs/<study>/slurm`, which only its owner can write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from statelab.sweeps.engine import Crew
from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import need
from statelab.sweeps.pool import MAX_DEATHS
from statelab.sweeps.stop import Interrupted, StopSignals

POLL_SECONDS = 3.0
GRACE_SECONDS = 120.0


class WorkerJob:
    """One worker as a job: a process of its own, so that it ends as every worker does when the job must."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        code = -signal.SIGKILL
        for _ in range(MAX_DEATHS):
            self._process = subprocess.Popen(self._command, env=os.environ | self._environment)
            code = self._process.wait()
            if code >= 0:
                break
        if code:
            raise RuntimeError(f"the worker ended with code {code}")
        return code

    def checkpoint(self) -> Any:
        """Before a time limit or a preemption: let the worker leave its checkpoint, and ask for another job."""
        import submitit

        if self._process is not None:
            self._process.terminate()
            self._process.wait(GRACE_SECONDS)
        return submitit.helpers.DelayedSubmission(WorkerJob(self._command, self._environment))


def slurm_engine(options: Mapping[str, Any]) -> Callable[[Crew, StopSignals], None]:
    """Runs a crew as jobs and waits for them. Raises UserError for options that submitit does not have."""
    submitit = need("submitit", "slurm")
    asked = dict(options)
    cluster = asked.pop("cluster", "slurm")

    def run(crew: Crew, stop: StopSignals) -> None:
        folder = crew.folder / "slurm"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            executor.update_parameters(name=f"statelab-{crew.folder.name}", **asked)
            job = WorkerJob(crew.command(), crew.environment())
            with executor.batch():
                jobs = [executor.submit(job) for _ in range(crew.count)]
        except (submitit.core.utils.FailedJobError, RuntimeError, NameError, TypeError, ValueError) as error:
            raise UserError(f"slurm: {' '.join(str(error).split())}") from None
        _say(f"{len(jobs)} jobs: {', '.join(job.job_id for job in jobs)}; their output is in {folder}")
        _wait_for(jobs, cluster, stop)

    return run


def _wait_for(jobs: list[Any], cluster: str, stop: StopSignals) -> None:
    while _still_open(jobs, cluster):
        if stop.received is not None:
            for job in jobs:
                job.cancel(check=False)
            raise Interrupted(stop.received)
        time.sleep(POLL_SECONDS)


def _still_open(jobs: list[Any], cluster: str) -> bool:
    """Whether a job waits or runs. Slurm's queue tells, which every Slurm has; not all keep accounts."""
    if cluster != "slurm":
        return not all(job.done() for job in jobs)
    ids = ",".join(sorted({job.job_id.partition("_")[0] for job in jobs}))
    asked = subprocess.run(["squeue", "-h", "-j", ids, "-o", "%i"], capture_output=True, text=True)
    gone = asked.returncode != 0 and "Invalid job id" in asked.stderr
    # A controller that does not answer for a while says nothing about jobs.
    return not gone and (asked.returncode != 0 or bool(asked.stdout.strip()))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
