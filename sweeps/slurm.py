"""Workers as jobs of a Slurm cluster, by submitit. They share the study's folder with the launcher.

submitit writes and submits the scripts; each runs `statelab.sweeps.job`. Its way of handing a function to a job, as a
pickle in a file that the job reads, is not used: nothing that lies in a folder is executed but the scripts, which are
in `runs/<study>/slurm`, a folder that only its owner can write to.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statelab.sweeps.engine import Crew
from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import need
from statelab.sweeps.stop import Interrupted, StopSignals

POLL_SECONDS = 3.0


def slurm_engine(options: Mapping[str, Any]) -> Callable[[Crew, StopSignals], None]:
    """Runs a crew as jobs and waits for them. Raises UserError for options that submitit does not have."""
    submitit = need("submitit", "slurm")
    asked = dict(options)
    cluster = asked.pop("cluster", "slurm")

    def run(crew: Crew, stop: StopSignals) -> None:
        folder = private_folder(crew.folder / "slurm")
        command = shlex.join([sys.executable, "-m", "statelab.sweeps.job", *crew.command()])
        jobs: list[Any] = []
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            executor.update_parameters(name=f"statelab-{crew.folder.name}", **asked)
            with _environment(crew.environment()):
                for _ in range(crew.count):
                    # Not submit(), which takes a function to pickle.
                    jobs.append(executor._executor._submit_command(command))  # noqa: PERF401
        except (
            submitit.core.utils.FailedJobError, RuntimeError, NameError, TypeError, ValueError, AssertionError,
        ) as error:  # fmt: skip
            for job in jobs:
                job.cancel(check=False)
            raise UserError(f"slurm: {' '.join(str(error).split())}") from None
        _say(f"{len(jobs)} jobs: {', '.join(job.job_id for job in jobs)}; their output is in {folder}")
        _wait_for(jobs, cluster, stop)

    return run


def private_folder(folder: Path) -> Path:
    """The folder, made where it is missing. Raises UserError where others could put a script of theirs into it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UserError(
            f"{folder} belongs to, or can be written to by, others, and what lies there is run as you: "
            "make it yours alone (chmod 700) or take it away"
        )
    return folder


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment that jobs take over: a storage's password stands in no file and on no command line."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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
