"""Put on PYTHONPATH by the torture: kills its process in the middle of a write, now and then.

Journal lines and records are made durable by fsync. With the probability in STATELAB_TORN the file is cut within
what was written last, as a power cut would leave it, and the process is killed.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

_fsync = os.fsync


def _cut_and_die(number: int) -> None:
    opened = Path(f"/proc/self/fd/{number}")
    text = opened.read_bytes()
    last_line = len(text.rstrip(b"\n")) - (text.rstrip(b"\n").rfind(b"\n") + 1)
    os.ftruncate(number, max(0, len(text) - random.randint(1, max(1, last_line))))
    with Path(os.environ["STATELAB_TORN_TALLY"]).open("a") as tally:
        tally.write(f"{opened.readlink()}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _fsync_or_die(file: int | object) -> None:
    if random.random() < float(os.environ["STATELAB_TORN"]):
        _cut_and_die(file if isinstance(file, int) else file.fileno())  # type: ignore[attr-defined]
    _fsync(file)  # type: ignore[arg-type]


if os.environ.get("STATELAB_TORN"):
    os.fsync = _fsync_or_die  # type: ignore[assignment]
