"""Who holds a lane, and whether that worker still lives. Imports neither torch nor optuna."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

LEASE_SECONDS = 120.0
BEAT_SECONDS = 30.0


def this_worker() -> str:
    """This process, as `machine:process:start`: no other one, here or elsewhere, now or later, is called so."""
    return f"{machine()}:{os.getpid()}:{start_time(os.getpid())}"


@cache
def machine() -> str:
    """The host and the part of it in which process numbers mean the same: a container has its own numbers."""
    seen = [_text(Path("/proc/sys/kernel/random/boot_id"))]
    try:
        seen.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        seen.append("")
    return f"{socket.gethostname()}/{hashlib.blake2b(repr(seen).encode(), digest_size=3).hexdigest()}"


def is_alive(worker: str, lease: float, now: float) -> bool:
    """Whether a worker lives: on this machine by its process, elsewhere as long as its lease runs."""
    where, pid, started = [*worker.rsplit(":", 2), "", ""][:3]
    if where == machine():
        return pid.isdigit() and start_time(int(pid)) == started
    return lease > now


def start_time(pid: int) -> str:
    """When a process of this machine started, in clock ticks; `gone` for none, or one that is only not yet buried.

    A number that has been used again by another process differs in it.
    """
    text = _text(Path(f"/proc/{pid}/stat"))
    if not text:
        return _alive_without_proc(pid)
    state_and_more = text.rpartition(")")[2].split()
    return "gone" if state_and_more[0] == "Z" else state_and_more[19]


class Leases:
    """Until when each worker of a study holds what it holds, kept as attributes of the study by its name.

    `read` gives all attributes of the study, `write` sets one.
    """

    PREFIX = "lease "

    def __init__(self, read: Callable[[], Mapping[str, Any]], write: Callable[[str, Any], None]) -> None:
        self._read, self._write = read, write

    def renew(self, worker: str) -> None:
        """Let a worker hold what it holds for LEASE_SECONDS from now on."""
        self._write(self.PREFIX + worker, time.time() + LEASE_SECONDS)

    def end(self, worker: str) -> None:
        """Let a worker hold nothing any more."""
        self._write(self.PREFIX + worker, 0.0)

    def runs(self, worker: str) -> bool:
        """Whether a worker lives, as `is_alive`."""
        return is_alive(worker, float(self._read().get(self.PREFIX + worker, 0.0)), time.time())

    def living(self) -> set[str]:
        """Workers that live and have not ended their lease."""
        ends = {
            name.removeprefix(self.PREFIX): float(end)
            for name, end in self._read().items()
            if name.startswith(self.PREFIX)
        }
        return {worker for worker, end in ends.items() if end > 0 and is_alive(worker, end, time.time())}


class Heartbeat:
    """Calls `beat` in the background for the duration of a block, so that a lease is renewed in time.

    A beat that fails, as when a database restarts, is told once and made again: training goes on meanwhile.
    """

    def __init__(self, beat: Callable[[], None], say: Callable[[str], None]) -> None:
        self._beat, self._say = beat, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._told = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                self._beat()
            except Exception as error:  # of whatever kind a storage's driver has
                if not self._told:
                    self._say(f"the lease could not be renewed ({type(error).__name__}); training goes on")
                self._told = True


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _alive_without_proc(pid: int) -> str:
    if Path("/proc").is_dir():
        return "gone"
    try:
        os.kill(pid, 0)
    except OSError:
        return "gone"
    return "alive"
