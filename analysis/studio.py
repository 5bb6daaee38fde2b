"""The pieces of a report drawn by processes of their own, on two cores, where a fork is safe."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelab.analysis.drawing import Picture, picture_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from matplotlib.figure import Figure

    from statelab.analysis.pieces import Piece

    Sketches = Mapping[str, Callable[[], Figure]]

_LONGEST = ("rates", "curves", "lengths", "lengths_scaled", "lengths_exact", "solved", "time", "capacity")
"""What takes longest is drawn first, so that neither process waits for the other at the end."""


@contextlib.contextmanager
def studio(formats: Collection[str]) -> Iterator[Callable[[Sequence[Piece]], dict[str, Picture]]]:
    """A function that draws those pieces that have a figure: pictures by name, in `formats` beside what a page needs.

    Where a fork is safe another process draws, on two cores; it imports matplotlib while the caller still reads.
    """
    if not _may_fork():
        yield lambda pieces: {
            name: picture_of(name, draw, formats) for name, draw in _sketches(pieces).items()
        }
        return
    ours, theirs = multiprocessing.Pipe()
    other = _forked(_serve, ours, theirs, formats)
    theirs.close()
    try:
        yield lambda pieces: _ordered(ours, _sketches(pieces), formats)
    finally:
        ours.close()
        other.kill()
        other.join()


def _sketches(pieces: Sequence[Piece]) -> Sketches:
    return {piece.name: piece.draw for piece in pieces if piece.draw is not None}


def _ordered(pipe: Connection, sketches: Sketches, formats: Collection[str]) -> dict[str, Picture]:
    """The pictures that the process at the other end draws. What it owes is drawn here, or says why it cannot be."""
    pictures: dict[str, Picture] = {}
    # A process that was lost, to a lack of memory perhaps, sends nothing.
    with contextlib.suppress(EOFError, ConnectionError):
        pipe.send(sketches)
        pictures = pipe.recv()
    return {name: pictures.get(name) or picture_of(name, draw, formats) for name, draw in sketches.items()}


def _serve(unused: Connection, pipe: Connection, formats: Collection[str]) -> None:
    """In the other process: draw what the pipe brings, half of it in a process of its own."""
    unused.close()
    # Before the other process, so that both have them.
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import PIL.Image

    import statelab.analysis.style  # noqa: F401

    PIL.Image.preinit()
    if "pdf" in formats:
        import matplotlib.backends.backend_pdf  # noqa: F401

    with contextlib.suppress(EOFError, ConnectionError):
        sketches: Sketches = pipe.recv()
        ordered = list(dict.fromkeys(name for name in (*_LONGEST, *sketches) if name in sketches))
        # A byte for each: who reads it draws it, and a process that is lost holds up nobody.
        turns, given = os.pipe()
        os.write(given, bytes(range(len(ordered))))
        os.close(given)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        _forked(_send_in_turn, ours, theirs, turns, ordered, sketches, formats)
        theirs.close()
        pictures = _draw_in_turn(turns, ordered, sketches, formats)
        with contextlib.suppress(EOFError):
            pictures |= ours.recv()
        pipe.send(pictures)


def _send_in_turn(unused: Connection, pipe: Connection, *work: Any) -> None:
    unused.close()
    with contextlib.suppress(ConnectionError):
        pipe.send(_draw_in_turn(*work))


def _draw_in_turn(
    turns: int, names: Sequence[str], sketches: Sketches, formats: Collection[str]
) -> dict[str, Picture]:
    """Pictures of those that no other process took first; one that cannot be drawn is left to be told of."""
    pictures = {}
    parent = multiprocessing.parent_process()
    # A process whose own is gone draws for nobody.
    while parent is not None and os.getppid() == parent.pid and (turn := os.read(turns, 1)):
        name = names[turn[0]]
        with contextlib.suppress(Exception):
            pictures[name] = picture_of(name, sketches[name], formats)
    return pictures


def _forked(work: Callable[..., None], *args: Any) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=_alone, args=(work, *args))
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; those of the numerical libraries wait, and the new process calls none.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _alone(work: Callable[..., None], *args: Any) -> None:
    # Ctrl-C is for the process that was started by hand, which ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(*args)


def _may_fork() -> bool:
    """Whether a fork is safe and gains something: not beside torch's threads or a graphics card's state."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return cores > 1 and sys.platform == "linux" and "torch" not in sys.modules
