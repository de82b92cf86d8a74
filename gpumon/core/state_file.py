"""Files in the user's state folder, which another process may lock, or replace by a pipe or a device."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumon.core.ownership import ownership_problem
from gpumon.core.problems import Problem, ProblemCode

STATE_REMEDY: Final = "Set XDG_STATE_HOME to a folder that belongs to you and has space."
_LOCK_TICK_SECONDS: Final = 0.02


def state_file(name: str) -> Path:
    """Path of a file in the user's state folder.

    Raises:
        RuntimeError: The user has no home folder.
    """
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gpumon" / name


def save_state(path: Callable[[], Path], write: Callable[[Path], None], failure: str) -> Problem | None:
    """Write a file of the state folder; returns why that is not possible.

    Args:
        path: Returns the path of the file.
        write: Writes it; its folder exists.
        failure: What has failed, as the beginning of a sentence.
    """
    try:
        file = path()
        problem = ownership_problem(file)
        if problem is not None:
            return Problem(ProblemCode.NOT_WRITTEN, f"{failure}. {problem.reason}", STATE_REMEDY)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(file)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Problem(ProblemCode.NOT_WRITTEN, f"{failure}: {reason}.", STATE_REMEDY)
    return None


def open_regular(file: Path, flags: int) -> int:
    """Open a regular file; a pipe or a device in its place is neither waited for nor read.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
    """
    descriptor = os.open(file, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return descriptor


def lock_file(descriptor: int, seconds: float) -> None:
    """Lock a file until it is closed.

    Raises:
        BlockingIOError: Another process holds the lock for ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_TICK_SECONDS)
        else:
            return
