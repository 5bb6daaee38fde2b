"""Ctrl-C, SIGTERM and a closed terminal as a wish that is granted at the next safe moment."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupted(Exception):
    """Training was asked to stop and has left a checkpoint; `signum` says by what."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.signum


class StopSignals:
    """Within the block, the first SIGINT, SIGTERM or SIGHUP sets `received`; a second SIGINT interrupts at once.

    A SIGHUP that was ignored before, as nohup has it, stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(signum) if _in_main_thread() else None
            if signum != signal.SIGHUP or before != signal.SIG_IGN:
                self._before[signum] = before
        self.install()
        return self

    def __exit__(self, *exception: object) -> None:
        if _in_main_thread():
            for signum, handler in self._before.items():
                signal.signal(signum, handler)  # type: ignore[arg-type]

    def install(self) -> None:
        """Set the handlers; again where somebody else, as Lightning does, has put its own in front."""
        if _in_main_thread():
            for signum in self._before:
                signal.signal(signum, self._note)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.received is not None:
            raise Interrupted(self.received)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.received is not None and signum == signal.SIGINT:
            raise Interrupted(signum)
        self.received = signum


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
