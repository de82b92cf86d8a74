"""The log of the signals that gpumon has sent or refused: one JSON line each in the user's state folder."""

import os
import stat
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from gpumon.core.json_text import json_bytes
from gpumon.core.problems import Problem
from gpumon.core.state_file import save_state
from gpumon.operations.doctor.redaction import without_secrets
from gpumon.operations.signals import SignalResult
from gpumon.workload_runs.results import results_file

MAX_BYTES: Final = 256 << 10
"""A larger file is renamed to ``signals.log.1``, which replaces the previous one of that name."""


def signal_log() -> Path:
    """Path of the file.

    Raises:
        RuntimeError: The user has no home folder.
    """
    return results_file().with_name("signals.log").absolute()


def log_signal(result: SignalResult) -> Problem | None:
    """Append what became of a signal; returns why that is not possible, which does not affect the signal."""
    target = result.target
    document = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "signal": result.sent.title,
        "pid": target.pid,
        "user": target.user,
        "command": without_secrets(target.command),
        "sent": not result.refusal,
        "reason": result.refusal or None,
    }
    return save_state(signal_log, lambda path: _append(path, json_bytes(document)), "The signal was not logged")


def _append(path: Path, line: bytes) -> None:
    """Append a line to a file that only its user can read.

    Raises:
        OSError: It cannot be written, or is not a regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file")
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    with suppress(FileNotFoundError):  # another gpumon renamed it first
        if status.st_size > MAX_BYTES and os.path.samestat(path.lstat(), status):
            path.replace(path.with_name(f"{path.name}.1"))
