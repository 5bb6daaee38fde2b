"""Several workers on this machine: processes of `statelab worker`, one a graphics card or a share of the cores."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from statelab.sweeps.progress import LAST_MARK, LIVE_MARK, RELAY, Board
from statelab.sweeps.stop import Interrupted, StopSignals

_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerFailed(Exception):
    """A worker ended in another way than by finishing or being stopped; it has said why."""


class Pool:
    """`count` workers of the study in `folder`, each with its share of the cores, or a card of its own."""

    def __init__(self, folder: Path, count: int, device: str, max_lanes: int, stop: StopSignals) -> None:
        self._command = [
            sys.executable, "-m", "statelab.sweeps.cli", "worker", str(folder),
            "--device", device, "--max-lanes", str(max_lanes),
        ]  # fmt: skip
        self._count, self._stop, self._on_cards = count, stop, device == "cuda"
        self._lines: queue.Queue[tuple[int, str | None]] = queue.Queue()

    def run(self) -> None:
        """Work until no lane waits. Raises Interrupted if asked to stop, WorkerFailed if a worker fails."""
        workers = [self._start(index) for index in range(self._count)]
        readers = [
            threading.Thread(target=self._read, args=(index, worker), daemon=True)
            for index, worker in enumerate(workers)
        ]
        for reader in readers:
            reader.start()
        board = Board()
        try:
            self._watch(workers, board)
        finally:
            board.close()
            for worker in workers:
                worker.kill()
                worker.wait()
            for reader in readers:
                reader.join()

    def _watch(self, workers: list[subprocess.Popen[str]], board: Board) -> None:
        ended, told = 0, False
        while ended < self._count:
            try:
                index, line = self._lines.get(timeout=0.1)
            except queue.Empty:
                line, index = "", -1
            if line is None:
                ended += 1
                failed = workers[index].wait() != 0
                if failed and self._stop.received is None:
                    raise WorkerFailed(
                        f"worker {index + 1} of {self._count} failed; what it had finished is recorded"
                    )
            elif index >= 0 and (not told or line[:1] in (LIVE_MARK, LAST_MARK)):
                board.take(index, line)  # once stopped, the launcher alone says so
            if self._stop.received is not None and not told:
                told = True
                for worker in workers:
                    worker.send_signal(self._stop.received)
        if self._stop.received is not None:
            raise Interrupted(self._stop.received)

    def _start(self, index: int) -> subprocess.Popen[str]:
        threads = max(1, cores() // self._count)
        changes = {RELAY: str(os.getpid()), "OMP_NUM_THREADS": str(threads)}
        if self._on_cards:
            changes["CUDA_VISIBLE_DEVICES"] = str(index)
        return subprocess.Popen(
            self._command,
            env=os.environ | changes,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A terminal's Ctrl-C goes to the launcher alone, which passes it on once.
            start_new_session=True,
        )

    def _read(self, index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stderr is not None
        with worker.stderr:
            for line in worker.stderr:
                self._lines.put((index, line.rstrip("\n")))
        self._lines.put((index, None))


def die_with_launcher() -> None:
    """In a worker of a pool: be killed when the launcher is, so that none goes on unseen (Linux)."""
    launcher = os.environ.get(RELAY)
    if launcher is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(launcher):
            sys.exit("the launcher has ended")
