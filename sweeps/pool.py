"""Several workers on this machine: processes of `statelab worker`, one a graphics card or a share of the cores."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time

from statelab.sweeps.engine import Crew
from statelab.sweeps.progress import LAST_MARK, LIVE_MARK, RELAY, Board
from statelab.sweeps.stop import Interrupted, StopSignals

_PR_SET_PDEATHSIG = 1
MAX_DEATHS = 5
LONG_LIFE_SECONDS = 60.0
"""A worker that is killed more often than MAX_DEATHS times in a row, each time sooner than this, is given up."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerFailed(Exception):
    """A worker ended in another way than by finishing or being stopped; it has said why."""


class Pool:
    """A crew on this machine: each worker has its share of the cores, or a card of its own."""

    def __init__(self, crew: Crew, stop: StopSignals) -> None:
        self._crew, self._count, self._stop = crew, crew.count, stop
        self._lines: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._workers: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._began = [0.0] * crew.count
        self._deaths = [0] * crew.count
        self._told = False

    def run(self) -> None:
        """Work until no lane waits. Raises Interrupted if asked to stop, WorkerFailed if a worker fails."""
        board = Board()
        try:
            self._workers = [self._start(index) for index in range(self._count)]
            self._watch(board)
        finally:
            board.close()
            for worker in self._workers:
                worker.kill()
                worker.wait()
            for reader in self._readers:
                reader.join()

    def _watch(self, board: Board) -> None:
        ended = 0
        while ended < self._count:
            try:
                index, line = self._lines.get(timeout=0.1)
            except queue.Empty:
                line, index = "", -1
            if line is None:
                ended += not self._started_again(index, board)
            elif index >= 0 and (not self._told or line[:1] in (LIVE_MARK, LAST_MARK)):
                board.take(index, line)  # once stopped, the launcher alone says so
            if self._stop.received is not None and not self._told:
                self._told = True
                for worker in self._workers:
                    worker.send_signal(self._stop.received)
        if self._stop.received is not None:
            raise Interrupted(self._stop.received)

    def _started_again(self, index: int, board: Board) -> bool:
        """After a worker's end: whether another one took its place, since it was killed rather than failed."""
        code = self._workers[index].wait()
        if code == 0 or self._stop.received is not None:
            return False
        lived = time.monotonic() - self._began[index]
        self._deaths[index] = self._deaths[index] + 1 if lived < LONG_LIFE_SECONDS else 1
        name = f"worker {index + 1} of {self._count}"
        if code > 0 or self._deaths[index] > MAX_DEATHS:
            how = "failed" if code > 0 else f"was killed {self._deaths[index]} times soon after its start"
            raise WorkerFailed(f"{name} {how}; what it had finished is recorded")
        board.take(index, f"{name} was killed ({_signal_name(-code)}); its lanes wait again for the next one")
        self._workers[index] = self._start(index)
        return True

    def _start(self, index: int) -> subprocess.Popen[str]:
        threads = max(1, cores() // self._count)
        changes = self._crew.environment() | {RELAY: str(os.getpid()), "OMP_NUM_THREADS": str(threads)}
        if self._crew.device == "cuda":
            changes["CUDA_VISIBLE_DEVICES"] = _card(index)
        worker = subprocess.Popen(
            self._crew.command(),
            env=os.environ | changes,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A terminal's Ctrl-C goes to the launcher alone, which passes it on once.
            start_new_session=True,
        )
        self._began[index] = time.monotonic()
        reader = threading.Thread(target=self._read, args=(index, worker), daemon=True)
        self._readers.append(reader)
        reader.start()
        return worker

    def _read(self, index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stderr is not None
        with worker.stderr:
            for line in worker.stderr:
                self._lines.put((index, line.rstrip("\n")))
        self._lines.put((index, None))


def _card(index: int) -> str:
    """The card of a worker: one of those that the launcher may see, in turn."""
    seen = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card.strip()]
    if seen:
        return seen[index % len(seen)]
    import torch

    return str(index % max(1, torch.cuda.device_count()))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def die_with_launcher() -> None:
    """In a worker of a pool: be killed when the launcher is, so that none goes on unseen (Linux)."""
    launcher = os.environ.get(RELAY)
    if launcher is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(launcher):
            sys.exit("the launcher has ended")
