"""What gpumon itself costs, read from /proc and its own counters: a monitor must show that it is light."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.model import CallCost
from gpumon.ui.feed import Feed

_BEGAN: Final = time.monotonic()
_COLLECTOR: Final = b"collect/__main__.py"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_USER_TIME: Final = 11
"""Place of the user time among the fields of /proc/PID/stat that follow the name; system time is the next one."""


class ProcessCost(NamedTuple):
    """What a process has used so far.

    Attributes:
        pid: Its PID.
        cpu_seconds: User and system time.
        memory_bytes: Resident memory.
    """

    pid: int
    cpu_seconds: float
    memory_bytes: int


class CallsAt(NamedTuple):
    """What the driver calls have cost up to a moment.

    Attributes:
        seconds: The moment, on the machine's monotonic clock.
        calls: One by one; empty where nobody counts them.
    """

    seconds: float
    calls: tuple[CallCost, ...]


class Costs(NamedTuple):
    """What gpumon has cost up to a moment.

    Attributes:
        at_seconds: The moment, on this process's monotonic clock.
        running_seconds: How long gpumon has run.
        own: This process; None where /proc is not there.
        collectors: The collectors that it runs, most often one; none for a recording.
        frames_taken: Frames that have come in.
        frames_merged: Those of them that were not drawn, because a newer one had come already.
        frames_lost: Frames that were dropped, because the screen stood still for too long.
        terminal_bytes: Bytes sent to the terminal; None where there is none.
        frames_late: Frames whose reading took longer than the interval.
        calls: What the driver calls have cost.
    """

    at_seconds: float
    running_seconds: float
    own: ProcessCost | None
    collectors: tuple[ProcessCost, ...]
    frames_taken: int
    frames_merged: int
    frames_lost: int
    terminal_bytes: int | None
    frames_late: int = 0
    calls: CallsAt = CallsAt(0.0, ())


def measure(feed: Feed, terminal_bytes: int | None, proc: Path = Path("/proc")) -> Costs:
    """The costs up to now.

    Args:
        feed: What is shown.
        terminal_bytes: Bytes sent to the terminal so far.
        proc: Where processes are listed; another folder in tests.
    """
    now = time.monotonic()
    pid = os.getpid()
    frame = feed.store.frame
    found = (process_cost(child, proc) for child in collectors(pid, proc))
    return Costs(
        at_seconds=now,
        running_seconds=now - _BEGAN,
        own=process_cost(pid, proc),
        collectors=tuple(each for each in found if each is not None),
        frames_taken=feed.frames_taken,
        frames_merged=feed.frames_merged,
        frames_lost=feed.stream.inbox.lost,
        terminal_bytes=terminal_bytes,
        frames_late=feed.frames_late,
        calls=CallsAt(0.0, ()) if frame is None else CallsAt(frame.monotonic_seconds, frame.sweep.calls_by_name),
    )


def process_cost(pid: int, proc: Path = Path("/proc")) -> ProcessCost | None:
    """What a process has used; None if it cannot be read, most often because it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        pages = int((proc / str(pid) / "statm").read_bytes().split()[1])
        ticks = int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessCost(pid, ticks / _TICKS, pages * _PAGE_BYTES)


def collectors(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The collectors among the children of a process; each of its threads has a list of its own."""
    found: list[int] = []
    with suppress(OSError):
        for children in (proc / str(pid) / "task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in children.read_bytes().split() if _is_collector(int(child), proc)]
    return sorted(found)


def _is_collector(pid: int, proc: Path) -> bool:
    with suppress(OSError):
        return _COLLECTOR in (proc / str(pid) / "cmdline").read_bytes()
    return False
