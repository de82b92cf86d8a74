"""Loads the probe into a running process with `sys.remote_exec`, which Python has from 3.14 on."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import devnull
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError
from gpumon.probe.attach.access import Attachability, AttachState, attachability
from gpumon.probe.attach.errors import (
    MIN_VERSION,
    disabled,
    ended,
    failed,
    keeps_probe,
    no_temporary_folder,
    other_file_system,
    other_temporary_folder,
    timed_out,
    too_old,
    unreadable,
)
from gpumon.probe.attach.handshake import end_probe, listening_in
from gpumon.probe.attach.interpreter import remote_exec
from gpumon.probe.attach.script_dir import AttachOutcome, ScriptDir
from gpumon.probe.attach.target import Target, read_target

__all__ = ["AttachState", "Attachability", "Attached", "attach", "attachability", "detach"]

_PROC_TIMEOUT_SECONDS: Final = 5.0
_HELLO_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 3.0
"""After this time without an answer, `attach` reports that it waits."""
_EMPTY_SCRIPT: Final = Path(devnull)


@dataclass(frozen=True, slots=True)
class Attached:
    """A process with a probe.

    Attributes:
        target: The process.
        was_there: Whether it had a probe before.
        folder: Where the probe listens; None if the folder belongs to another user, or if the probe waits for the
            first CUDA context.
    """

    target: Target
    was_there: bool
    folder: Path | None


def attach(pid: int, timeout_seconds: float = 10.0, on_wait: Callable[[Target], None] | None = None) -> Attached:
    """Start a probe in a process, and wait until it answers.

    Args:
        pid: The PID in gpumon's PID namespace.
        timeout_seconds: Longest time to wait.
        on_wait: Called once, with the process, if it has accepted the request and has not run it after 3 s.

    Raises:
        CommandError: The probe cannot be loaded, or does not answer yet.
    """
    target = _read_with_timeout(pid)
    folder = listening_in(target)
    if folder is not None:
        return Attached(target, was_there=True, folder=folder)
    if target.named_version is not None and target.named_version < MIN_VERSION:
        raise too_old(target, target.named_version)
    if target.has_other_file_system:
        raise other_file_system(target)
    try:
        script_dir = ScriptDir(target)
    except OSError as error:
        raise no_temporary_folder(error) from None
    try:
        if not target.sees(script_dir.script):
            raise other_temporary_folder(target, script_dir.folder.parent)
        return _run_script(target, script_dir, timeout_seconds, on_wait)
    finally:
        script_dir.close()


def _read_with_timeout(pid: int) -> Target:
    """Read the process on a thread that can be abandoned: /proc may block for a process that hangs in a driver."""
    results: list[Target | CommandError] = []

    def read() -> None:
        try:
            results.append(read_target(pid))
        except CommandError as error:
            results.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_PROC_TIMEOUT_SECONDS)
    if not results:
        raise unreadable(pid)
    if isinstance(results[0], CommandError):
        raise results[0]
    return results[0]


def detach(pid: int, timeout_seconds: float = 10.0) -> Target | None:
    """End the probe of a process, and wait until it has left; return the process, or None if no probe listened.

    Args:
        pid: The PID in gpumon's PID namespace.
        timeout_seconds: Longest time to wait.

    Raises:
        CommandError: The process cannot be read, or its probe has not ended in time.
    """
    target = _read_with_timeout(pid)
    has_ended = end_probe(target, timeout_seconds)
    if has_ended is False:
        raise keeps_probe(target, timeout_seconds)
    return target if has_ended else None


def _run_script(
    target: Target, script_dir: ScriptDir, timeout_seconds: float, on_wait: Callable[[Target], None] | None
) -> Attached:
    try:
        remote_exec(target, script_dir.script)
        return _wait_for_probe(target, script_dir, timeout_seconds, on_wait)
    except KeyboardInterrupt:
        if script_dir.outcome() is None:
            with suppress(CommandError):
                remote_exec(target, _EMPTY_SCRIPT)  # replaces the script, which has not run yet
        raise


def _wait_for_probe(
    target: Target, script_dir: ScriptDir, timeout_seconds: float, on_wait: Callable[[Target], None] | None
) -> Attached:
    start = time.monotonic()
    deadline = start + timeout_seconds
    while True:
        outcome = script_dir.outcome()
        attached = None if outcome is None else _attached(target, outcome)
        if attached is not None:
            return attached
        if target.state is None:
            raise ended(target)
        if on_wait is not None and outcome is None and time.monotonic() - start > _QUIET_SECONDS:
            on_wait(target)
            on_wait = None
        if time.monotonic() >= deadline:
            script_dir.stop_waiting()
            raise timed_out(target, timeout_seconds, has_run=outcome is not None)
        time.sleep(_POLL_SECONDS)


def _attached(target: Target, outcome: AttachOutcome) -> Attached | None:
    """The result of the script, or None while the probe does not answer yet."""
    if outcome.reason is not None:
        raise failed(target, outcome.reason)
    if not outcome.runs:
        raise disabled(target)
    folder = listening_in(target, _HELLO_SECONDS)
    if folder is None and not outcome.was_there and not target.is_foreign:
        return None
    return Attached(target, was_there=outcome.was_there, folder=folder)
