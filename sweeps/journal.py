"""The study's journal file, safe to be killed over: a lock that dies with its owner, and no torn last line."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


class FlockLock:
    """A lock, of the two methods that Optuna's journal calls, which the kernel releases when its process dies.

    Optuna's own file locks stay behind after a kill -9 and hold everybody up for half a minute.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait for the lock and take it."""
        file = self._path.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file for the duration of a block; its owner's death releases it too."""
    lock = FlockLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def open_journal(path: Path) -> JournalStorage:
    """Optuna's journal storage in a file, its torn tail, if a write was cut short, cut off under the lock."""
    lock_path = path.with_name(path.name + ".flock")
    with held(lock_path):
        _cut_torn_tail(path)
    return JournalStorage(JournalFileBackend(str(path), lock_obj=cast(Any, FlockLock(lock_path))))


def _cut_torn_tail(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end, block = size, 65536
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
