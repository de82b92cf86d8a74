"""Loads the probe into a running process: by a pending call up to Python 3.13, with `sys.remote_exec` from 3.14 on."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from os import devnull
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.probe.attach.access import Attachability, AttachState, attachability, check_access
from gpumon.probe.attach.errors import REMOTE_EXEC_VERSION, keeps_probe, timed_out, with_detail
from gpumon.probe.attach.handshake import end_probe, listening_in
from gpumon.probe.attach.injection import pending_call
from gpumon.probe.attach.interpreter import remote_exec
from gpumon.probe.attach.refusals import RefusalError
from gpumon.probe.attach.remote_script import IMPORTING
from gpumon.probe.attach.script_dir import AttachOutcome, ScriptDir, outcome_after, outcomes_in_memory
from gpumon.probe.attach.script_text import REQUEST_SECONDS, pending_text
from gpumon.probe.attach.target import Target, read_target

__all__ = ["AttachState", "Attachability", "Attached", "attach", "attachability", "detach"]

_PROC_TIMEOUT_SECONDS: Final = 5.0
_HELLO_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05
_TRACED_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.2
_QUIET_SECONDS: Final = 3.0
"""After this time without an answer, `attach` reports that it waits."""


class _ImportingError(Exception):
    """The main thread was importing modules when it ran the request."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A process with a probe.

    Attributes:
        target: The process.
        was_there: Whether it had a probe before.
        folder: Where the probe listens; None if it waits for the first CUDA context.
        stopped_seconds: How long the main thread stood still, or None if that was not measured.
    """

    target: Target
    was_there: bool
    folder: Path | None
    stopped_seconds: float | None = None


def attach(pid: int, timeout_seconds: float = 10.0, on_wait: Callable[[Target], None] | None = None) -> Attached:
    """Start a probe in a process, and wait until it answers.

    A process that has accepted the request and not run it within the timeout still runs it within an hour, unless this
    function is interrupted.

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
    deadline = time.monotonic() + _TRACED_SECONDS
    while True:
        try:
            check_access(target)
            return _load(target, timeout_seconds, on_wait)
        except RefusalError as error:  # another gpumon may trace the process for a moment
            if error.problem.code is not ProblemCode.NO_PERMISSION or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _load(target: Target, timeout_seconds: float, on_wait: Callable[[Target], None] | None) -> Attached:
    if target.named_version is None or target.named_version < REMOTE_EXEC_VERSION:
        return _with_pending_call(target, timeout_seconds, on_wait)
    if target.has_other_file_system:
        raise RefusalError("other_file_system", target=target, program=safe_text(target.program, 200))
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end:
        with suppress(_ImportingError):
            return _with_script(target, timeout_seconds, on_wait)
    raise RefusalError("importing", target=target)


def _with_script(target: Target, timeout_seconds: float, on_wait: Callable[[Target], None] | None) -> Attached:
    """Start a probe in a process of Python 3.14 or later."""
    try:
        script_dir = ScriptDir(target)
    except OSError as error:
        raise RefusalError("no_temporary_folder", detail=safe_text(error.strerror or str(error), 200)) from None
    try:
        if not target.sees(script_dir.script):
            folder = safe_text(str(script_dir.folder.parent), 200)
            raise RefusalError("other_temporary_folder", target=target, folder=folder)
        return _run_script(target, script_dir, timeout_seconds, on_wait)
    finally:
        script_dir.close()


def _with_pending_call(target: Target, timeout_seconds: float, on_wait: Callable[[Target], None] | None) -> Attached:
    """Start a probe in a process of Python 3.8 to 3.13."""
    deadline = time.time() + max(timeout_seconds, REQUEST_SECONDS)
    end = time.monotonic() + timeout_seconds
    while True:
        find_outcome = partial(outcome_after, target, outcomes_in_memory(target))
        with pending_call(target, pending_text(target), deadline) as call:
            try:
                attached = _wait_for_probe(target, call.is_waiting, find_outcome, timeout_seconds, on_wait)
                return replace(attached, stopped_seconds=call.stopped_seconds)
            except _ImportingError:
                pass
            except KeyboardInterrupt:
                call.expire_at(0)
                raise
        if time.monotonic() >= end:
            raise RefusalError("importing", target=target)
        time.sleep(_RETRY_SECONDS)


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
        raise RefusalError("hangs", pid=pid)
    if isinstance(results[0], CommandError):
        raise results[0]
    return results[0]


def detach(pid: int, timeout_seconds: float = 10.0) -> Target | None:
    """End the probe of a process, and wait until it has left; return the process, or None if no probe listened.

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
    """Have the process run the script, and wait for the probe."""
    is_accepted = False
    try:
        remote_exec(target, script_dir.script)
        is_accepted = True
        return _wait_for_probe(target, script_dir.is_waiting, script_dir.outcome, timeout_seconds, on_wait)
    except CommandError:
        if is_accepted:
            script_dir.stop_waiting()
        raise
    except KeyboardInterrupt:
        if script_dir.outcome() is None:
            with suppress(CommandError):
                remote_exec(target, Path(devnull))  # replaces the script, which has not run yet
        raise


def _wait_for_probe(
    target: Target,
    is_waiting: Callable[[], bool],
    find_outcome: Callable[[], AttachOutcome | None],
    timeout_seconds: float,
    on_wait: Callable[[Target], None] | None,
) -> Attached:
    """Wait until the probe answers; `find_outcome` reads what the process reports, maybe only once.

    Raises:
        CommandError: It does not, or the process has ended.
    """
    start = time.monotonic()
    outcome: AttachOutcome | None = None
    while True:
        outcome = outcome or find_outcome()
        attached = _attached(target, outcome) if outcome else None if is_waiting() else _listening(target)
        if attached is not None:
            return attached
        if target.state is None:
            raise RefusalError("ended", target=target)
        seconds = time.monotonic() - start
        if on_wait is not None and seconds > _QUIET_SECONDS and is_waiting():
            on_wait(target)
            on_wait = None
        if seconds >= timeout_seconds:
            raise timed_out(target, timeout_seconds, has_run=not is_waiting())
        time.sleep(_POLL_SECONDS)


def _listening(target: Target) -> Attached | None:
    """The result of a script whose outcome is not known, or None while the probe does not answer."""
    folder = listening_in(target, _HELLO_SECONDS)
    return None if folder is None else Attached(target, was_there=False, folder=folder)


def _attached(target: Target, outcome: AttachOutcome) -> Attached | None:
    """The result of the script, or None while the probe does not answer yet."""
    if outcome.reason == IMPORTING:
        raise _ImportingError
    if outcome.reason is not None:
        detail = with_detail(f"The probe could not start in {target.name}", outcome.reason)
        raise RefusalError("failed", detail=detail)
    if not outcome.runs:
        raise RefusalError("disabled", target=target)
    folder = listening_in(target, _HELLO_SECONDS)
    if folder is None and not outcome.was_there:
        return None
    return Attached(target, was_there=outcome.was_there, folder=folder)
