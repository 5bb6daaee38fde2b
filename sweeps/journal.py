"""The study's journal file, safe to be killed over: a lock that dies with its owner, and no torn line."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


class FlockLock:
    """A lock, of the two methods that Optuna's journal calls, which the kernel releases when its process dies.

    Optuna's own file locks stay behind after a kill -9 and hold everybody up for half a minute.
    """

    def __init__(self, path: Path, then: Callable[[], None] = lambda: None) -> None:
        self._path, self._then = path, then
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait for the lock, take it, and do what is to be done first by whoever has it."""
        file = self._path.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        self._then()
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
    """Optuna's journal storage in a file.

    The lock is taken before each write. Whoever takes it first cuts off the torn line that a killed worker or a
    full disk left: the next line would else be joined to it, and no worker could read the journal again.
    """
    lock = FlockLock(path.with_name(path.name + ".flock"), lambda: cut_torn_tail(path))
    lock.acquire()
    lock.release()
    return JournalStorage(JournalFileBackend(str(path), lock_obj=cast(Any, lock)))


def cut_torn_tail(path: Path) -> None:
    """Cut a file after its last end of line."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("r+b") as file:
        size = file.seek(-1, os.SEEK_END) + 1
        if file.read(1) == b"\n":
            return
        end, block = size, 65536
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        os.fsync(file.fileno())
