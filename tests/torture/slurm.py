"""A real Slurm of two nodes on this machine: a study by `--engine slurm` whose first job is killed in the middle.

Run as `python -m tests.torture.slurm`. Needs root, slurmctld, slurmd and munge (Debian's packages of these names).
Everything is kept in a temporary folder and listens on this machine alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statelab.sweeps.record import collect
from tests.torture.calm import ROOT, calm_run, write_spec
from tests.torture.compare import compare

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "sinfo", "scancel")
CONFIGURATION = """
ClusterName=statelab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=36817
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=36818 CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=36819 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """What this machine lacks, or None."""
    programs = [name for name in PROGRAMS if _program(name) is None]
    if programs:
        return f"needs {', '.join(programs)} (Debian: apt-get install slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "needs root, as slurmd does"


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Two nodes; the environment in which Slurm's commands find them."""
    with tempfile.TemporaryDirectory(prefix="statelab-slurm-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder))
        environment = os.environ | {"SLURM_CONF": str(configuration)}
        daemons: list[list[str | Path]] = [
            ["munged", "-F", "-f", "-S", folder / "munge.socket", "--key-file", key, "--pid-file", folder / "m.pid",
             "--seed-file", folder / "m.seed", "--log-file", folder / "m.log"],
            ["slurmctld", "-D", "-f", configuration],
            ["slurmd", "-D", "-f", configuration, "-N", "n1"],
            ["slurmd", "-D", "-f", configuration, "-N", "n2"],
        ]  # fmt: skip
        running = []
        try:
            for words in daemons:
                running.append(_started(words, environment))
                time.sleep(2)
            _wait_for_nodes(environment)
            yield environment
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _started(words: list[str | Path], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    program = _program(str(words[0]))
    assert program is not None
    return subprocess.Popen(
        [program, *map(str, words[1:])], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _wait_for_nodes(environment: dict[str, str]) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        said = _slurm(environment, "sinfo", "-h", "-N", "-o", "%N %T")
        if said.split().count("idle") == 2:
            return
        time.sleep(1)
    raise RuntimeError(f"the two nodes did not come up: {said}")


def _slurm(environment: dict[str, str], *words: str) -> str:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stdout


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def main() -> None:
    """Run the study, kill the worker of its first job, and compare with a calm run."""
    if reason := missing():
        sys.exit(f"torture-slurm: {reason}")
    with tempfile.TemporaryDirectory(prefix="statelab-torture-") as made, cluster() as environment:
        folder = Path(made)
        spec = write_spec(folder, 400)
        calm_run(folder, spec)
        command = [
            sys.executable, "-m", "statelab.sweeps.cli", "run", str(spec), "--runs", str(folder / "stormy"),
            "--no-report", "--device", "cpu", "--engine", "slurm", "--workers", "2", "--option", "timeout_min=30",
        ]  # fmt: skip
        changes = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        study = subprocess.Popen(command, env=environment | changes, cwd=folder)
        killed = _kill_a_worker(folder / "stormy/small", study)
        nodes = _slurm(environment, "squeue", "-h", "-o", "%i %T %N")
        code = study.wait()
        again = (
            code if code == 0 else subprocess.run(command, env=environment | changes, cwd=folder).returncode
        )
        assert again == 0
        assert len(collect(folder / "stormy/small")) == 12
        exact = compare(folder / "runs/small", folder / "stormy/small")
        print(f"nodes:\n{nodes}")  # noqa: T201
        print(f"worker {killed} killed; the study ended with {code}, then {again}; {exact} of 12 bit for bit")  # noqa: T201


def _kill_a_worker(study: Path, launcher: subprocess.Popen[bytes]) -> int:
    """Kill the process of a worker that has begun to train; its number."""
    while launcher.poll() is None:
        if any(study.glob("lanes/*/curve.jsonl")):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = path.read_bytes().split(b"\0")
                except OSError:
                    continue
                if (
                    b"statelab.sweeps.cli" in words
                    and b"worker" in words
                    and os.fsencode(str(study)) in words
                ):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    return int(path.parent.name)
        time.sleep(0.2)
    raise RuntimeError("the study ended before a worker could be killed")


if __name__ == "__main__":
    main()
