"""Workers on a Ray cluster: one actor for each card, or for each core where there is none.

An actor only holds its place in the cluster and runs a worker process beside it. When its node dies Ray starts it
elsewhere, and the new worker takes from the ledger what the dead one held.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from statelab.sweeps.engine import Crew
from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import need
from statelab.sweeps.pool import MAX_DEATHS, WorkerFailed
from statelab.sweeps.progress import LAST_MARK, LIVE_MARK, RELAY
from statelab.sweeps.stop import Interrupted, StopSignals

POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0
_OPTIONS = ("address", "gpus")


class Place:
    """A slot of the cluster. Its worker dies with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def work(self, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Run one worker to its end, and another one if it is killed; its exit code and last lines."""
        code, said = -signal.SIGKILL, [""]
        for _ in range(MAX_DEATHS):
            self._process = subprocess.Popen(
                # Ray's own Python may lie elsewhere on another node.
                [sys.executable, *command[1:]],
                env=os.environ | environment | {RELAY: str(os.getpid())},
                stderr=subprocess.PIPE,
                text=True,
            )
            assert self._process.stderr is not None
            said = [line for line in self._process.stderr if line[:1] not in (LIVE_MARK, LAST_MARK)]
            code = self._process.wait()
            if code >= 0 or self._stopped:
                break
        return code, "".join(said[-5:]).strip()

    def stop(self, signum: int) -> None:
        """Pass a signal on, so that the worker leaves its checkpoint."""
        self._stopped = True
        if self._process is not None:
            self._process.send_signal(signum)


def ray_engine(options: Mapping[str, Any]) -> Callable[[Crew, StopSignals], None]:
    """Runs a crew of actors and waits for them. Raises UserError for unknown options."""
    ray = need("ray", "ray")
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise UserError(f"ray: unknown option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")

    def run(crew: Crew, stop: StopSignals) -> None:
        connected = ray.is_initialized()
        if not connected:
            _connect(ray, options.get("address"))
        try:
            _run(ray, crew, stop, options)
        finally:
            if not connected:
                ray.shutdown()

    return run


def _connect(ray: Any, address: Any) -> None:
    try:
        if address is None:
            # One of our own, which nobody else can reach.
            ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        else:
            ray.init(address=str(address), log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"ray: no cluster at {address!r}: {' '.join(str(error).split())[:300]}") from None


def _run(ray: Any, crew: Crew, stop: StopSignals, options: Mapping[str, Any]) -> None:
    cards = float(options.get("gpus", 0 if crew.device == "cpu" else _cards(ray)))
    needs = {"num_gpus": cards} if cards else {"num_cpus": 1}
    # Another node takes over what a dead one was doing, as often as it takes.
    actor = ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=2, **needs)(Place)
    places = [actor.remote() for _ in range(crew.count)]
    working = {place.work.remote(crew.command(), crew.environment()): place for place in places}
    end = float("inf")
    try:
        while working and time.monotonic() < end:
            done, _ = ray.wait(list(working), timeout=POLL_SECONDS)
            if stop.received is not None:
                for place in places:
                    place.stop.remote(stop.received)
                ray.wait(list(working), num_returns=len(working), timeout=GRACE_SECONDS)
                raise Interrupted(stop.received)
            for one in done:
                _check(*ray.get(one))
                # Its slot may be what the successor of a dead one waits for.
                ray.kill(working.pop(one))
                # A worker ends when no lane is left for anybody: the others have only to close the door.
                end = min(end, time.monotonic() + GRACE_SECONDS)
    finally:
        for place in working.values():
            ray.kill(place)


def _check(code: int, said: str) -> None:
    if code:
        raise WorkerFailed(f"a worker ended with code {code}: {said}\nwhat it had finished is recorded")


def _cards(ray: Any) -> int:
    return 1 if ray.cluster_resources().get("GPU", 0) else 0
