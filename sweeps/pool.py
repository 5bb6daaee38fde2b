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
from pathlib import Path
from typing import TYPE_CHECKING

from statelab.sweeps.engine import Crew
from statelab.sweeps.progress import LAST_MARK, LIVE_MARK, RELAY, Board
from statelab.sweeps.stop import Interrupted, StopSignals

if TYPE_CHECKING:
    from statelab.sweeps.ahead import Ahead

_PR_SET_PDEATHSIG = 1
MAX_DEATHS = 5
LONG_LIFE_SECONDS = 60.0
"""A worker that is killed more often than MAX_DEATHS times in a row, each time sooner than this, is given up."""

CREW = "STATELAB_CREW"
"""Set in workers of a pool: how many they are."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerFailed(Exception):
    """A worker ended in another way than by finishing or being stopped; it has said why."""


class Pool:
    """A crew on this machine: each worker has its share of the cores, or a card of its own."""

    def __init__(self, crew: Crew, stop: StopSignals, ahead: Ahead | None = None) -> None:
        self._crew, self._count, self._stop, self._ahead = crew, crew.count, stop, ahead
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
            if self._ahead is not None:
                self._ahead.end()
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
        command, changes = self._crew.command(), environment_of(self._crew, index)
        worker = None if self._ahead is None else self._ahead.take(command, changes)
        worker = worker or subprocess.Popen(
            command,
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


def environment_of(crew: Crew, index: int, cards: int | None = None) -> dict[str, str]:
    """What a worker's environment has beside its launcher's: its share of the cores, or a card of its own.

    `cards` is how many there are, None to ask torch.
    """
    threads = max(1, cores() // crew.count)
    changes = {RELAY: str(os.getpid()), CREW: str(crew.count), "OMP_NUM_THREADS": str(threads)}
    if crew.device == "cuda":
        changes["CUDA_VISIBLE_DEVICES"] = _card(index, cards)
    return crew.environment() | changes


def visible_cards() -> int:
    """How many cards a launcher probably has, told without torch."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return len([card for card in _listed_cards() if card.strip() != "-1"])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _listed_cards() -> list[str]:
    return [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card.strip()]


def _card(index: int, cards: int | None) -> str:
    """The card of a worker: one of those that the launcher may see, in turn."""
    if seen := _listed_cards():
        return seen[index % len(seen)]
    if cards is None:
        import torch

        cards = torch.cuda.device_count()
    return str(index % max(1, cards))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def crew_size() -> int:
    """How many workers of this one's pool there are, those that are still starting included; 1 without a pool."""
    return int(os.environ.get(CREW, "1"))


def die_with_launcher() -> None:
    """In a worker of a pool: be killed when the launcher is, so that none goes on unseen (Linux)."""
    launcher = os.environ.get(RELAY)
    if launcher is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(launcher):
            sys.exit("the launcher has ended")
