"""Loads the probe into a process that was started without it: Python from 3.14 on runs scripts for others."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from os import devnull
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError
from gpumon.probe.attach.handover import Handover, Outcome
from gpumon.probe.attach.hello import listening_in
from gpumon.probe.attach.interpreter import ask_to_run
from gpumon.probe.attach.refusals import (
    LEAST_VERSION,
    elsewhere,
    ended,
    failed,
    late,
    no_folder,
    sees_no_folder,
    too_old,
    unreadable,
    unwanted,
)
from gpumon.probe.attach.target import Target, read_target

_PATIENCE_SECONDS: Final = 5.0
_HELLO_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.05
_NOTHING: Final = Path(devnull)


@dataclass(frozen=True, slots=True)
class Attached:
    """A process with a probe.

    Attributes:
        target: The process.
        was_there: Whether it had one before.
        folder: Where it listens; None if that is another user's, or if it waits for its first CUDA context.
    """

    target: Target
    was_there: bool
    folder: Path | None


def attach(pid: int, timeout_seconds: float = 10.0) -> Attached:
    """Starts a probe in a process, and waits until it answers.

    Args:
        pid: The process, as it is seen here.
        timeout_seconds: How long to wait.

    Raises:
        CommandError: It cannot be done, or has not come about yet.
    """
    target = _read_in_time(pid)
    folder = listening_in(target)
    if folder is not None:
        return Attached(target, was_there=True, folder=folder)
    if target.named_version is not None and target.named_version < LEAST_VERSION:
        raise too_old(target, target.named_version)
    if target.is_elsewhere:
        raise elsewhere(target)
    try:
        handover = Handover(target)
    except OSError as error:
        raise no_folder(error) from None
    try:
        if not target.sees(handover.script):
            raise sees_no_folder(target, handover.folder.parent)
        return _handed_over(target, handover, timeout_seconds)
    finally:
        handover.close()


def _read_in_time(pid: int) -> Target:
    """Reads it on a thread that can be left behind: /proc may wait for a process that hangs in a driver."""
    found: list[Target | CommandError] = []

    def read() -> None:
        try:
            found.append(read_target(pid))
        except CommandError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    if not found:
        raise unreadable(pid)
    if isinstance(found[0], CommandError):
        raise found[0]
    return found[0]


def _handed_over(target: Target, handover: Handover, timeout_seconds: float) -> Attached:
    try:
        ask_to_run(target, handover.script)
        return _followed(target, handover, timeout_seconds)
    except KeyboardInterrupt:
        if handover.outcome() is None:
            with suppress(CommandError):
                ask_to_run(target, _NOTHING)  # which it then runs in the place of the script
        raise


def _followed(target: Target, handover: Handover, timeout_seconds: float) -> Attached:
    """Waits for what comes of it."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        outcome = handover.outcome()
        attached = None if outcome is None else _attached(target, outcome)
        if attached is not None:
            return attached
        if target.state is None:
            raise ended(target)
        if time.monotonic() >= deadline:
            handover.leave()
            raise late(target, timeout_seconds, has_run=outcome is not None)
        time.sleep(_LOOK_SECONDS)


def _attached(target: Target, outcome: Outcome) -> Attached | None:
    """What the script has brought about, or None while the probe does not answer yet."""
    if outcome.reason is not None:
        raise failed(target, outcome.reason)
    if not outcome.runs:
        raise unwanted(target)
    folder = listening_in(target, _HELLO_SECONDS)
    if folder is None and not outcome.was_there and not target.is_foreign:
        return None
    return Attached(target, was_there=outcome.was_there, folder=folder)
