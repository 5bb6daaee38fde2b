"""Progress a person can read: one live line per population, or plain lines when the output is no terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

PLAIN_SECONDS = 15.0
LIVE_SECONDS = 0.2
RELAY = "STATELAB_RELAY"
"""Set in workers of a pool: their lines go to the launcher, marked, and it shows them."""
LIVE_MARK, LAST_MARK = "\x1e", "\x1f"


class Progress:
    """Lines of one population's training: cell, lanes, step, steps/s, solved so far, time left."""

    def __init__(
        self, label: str, lanes: int, steps: int, start: int = 0, stream: TextIO | None = None
    ) -> None:
        self._label, self._lanes, self._steps = label, lanes, steps
        self._start, self._began = start, time.monotonic()
        self._stream = stream or sys.stderr
        self._relayed = RELAY in os.environ
        self._live = self._relayed or self._stream.isatty()
        self._next = self._began + (0 if self._live else PLAIN_SECONDS)
        self._solved: int | None = None
        self._diverged = 0

    def step(self, step: int) -> None:
        """Say where training is, if it is time to."""
        now = time.monotonic()
        if now >= self._next:
            self._write(self._line(step, now), last=False)
            self._next = now + (LIVE_SECONDS if self._live else PLAIN_SECONDS)

    def evaluated(self, solved: int, diverged: int) -> None:
        """Note what the last evaluation found."""
        self._solved, self._diverged = solved, diverged

    def close(self, step: int) -> None:
        """The population's last line, which stays."""
        self._write(self._line(step, time.monotonic()), last=True)

    def _line(self, step: int, now: float) -> str:
        rate = (step - self._start) / max(now - self._began, 1e-9)
        parts = [f"{self._label}", f"{self._lanes} lanes", f"step {step}/{self._steps}"]
        if step > self._start:
            parts.append(f"{rate:.3g} steps/s")
        if self._solved is not None:
            parts.append(f"solved {self._solved}/{self._lanes}")
        if self._diverged:
            parts.append(f"diverged {self._diverged}")
        left = (self._steps - step) / rate if rate > 0 and step < self._steps else None
        parts.append(f"{duration(now - self._began)} gone" if left is None else f"{duration(left)} left")
        return " · ".join(parts)

    def _write(self, line: str, *, last: bool) -> None:
        if self._relayed:
            self._stream.write((LAST_MARK if last else LIVE_MARK) + line + "\n")
        elif self._live:
            self._stream.write(f"\r\x1b[2K{line}" + ("\n" if last else ""))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()


class Board:
    """The launcher's view of its workers: a live line for each, or plain lines now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._live: dict[int, str] = {}
        self._shown = 0
        self._next = time.monotonic() + PLAIN_SECONDS

    def take(self, worker: int, line: str) -> None:
        """Show a line that a worker wrote: a live one in its place, any other one for good."""
        if line.startswith(LIVE_MARK):
            self._live[worker] = line[1:]
            self._refresh()
            return
        if line.startswith(LAST_MARK):
            self._live.pop(worker, None)
            line = line[1:]
        self._erase()
        self._stream.write(line + "\n")
        self._draw()

    def close(self) -> None:
        """Leave no live line behind."""
        self._erase()
        self._stream.flush()

    def _refresh(self) -> None:
        if self._is_terminal:
            self._erase()
            self._draw()
        elif time.monotonic() >= self._next:
            self._stream.writelines(line + "\n" for line in self._live.values())
            self._stream.flush()
            self._next = time.monotonic() + PLAIN_SECONDS

    def _erase(self) -> None:
        if self._is_terminal and self._shown:
            self._stream.write(f"\x1b[{self._shown}F\x1b[J")
            self._shown = 0

    def _draw(self) -> None:
        if self._is_terminal:
            # A line that wrapped would be two to erase.
            width = shutil.get_terminal_size().columns - 1
            self._stream.writelines(line[:width] + "\n" for line in self._live.values())
            self._shown = len(self._live)
        self._stream.flush()


def duration(seconds: float) -> str:
    """A time as a person says it: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
