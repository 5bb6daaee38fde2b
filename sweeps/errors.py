"""What a person at the command line is told when something goes wrong: a sentence and an exit code."""

from __future__ import annotations

import errno


class UserError(Exception):
    """A mistake in what was asked, told as a sentence; exit code 2."""


class LanesFailed(Exception):
    """Lanes have failed as often as they may; the others are finished. Exit code 1."""


class DeviceLost(Exception):
    """A card is in an error state that only another process gets it out of. Exit code 1."""


def exit_code_of(error: BaseException) -> tuple[int, str | None]:
    """Exit code and sentence for an exception; no sentence for one that only a developer can mend."""
    # Imported here: the command line reads neither specs nor signals before it needs them.
    from statelab.sweeps.pool import WorkerFailed
    from statelab.sweeps.read import SpecError
    from statelab.sweeps.stop import Interrupted

    if isinstance(error, SpecError | UserError):
        return 2, str(error)
    if isinstance(error, Interrupted):
        return error.exit_code, (
            f"stopped by {error}: a checkpoint is kept and its lanes wait again; the same command goes on"
        )
    if isinstance(error, MemoryError | WorkerFailed | LanesFailed | DeviceLost):
        return 1, str(error) or "out of memory"
    if isinstance(error, OSError):
        return 1, _of_os_error(error)
    return 1, None


def _of_os_error(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{where}: what was recorded before is whole; make room and run the same command again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"cannot write here{where}: {error.strerror}; give a folder you may write to with --runs"
    return f"{error.strerror or error}{where}"
