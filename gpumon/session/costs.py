"""CPU time, memory, terminal output and driver calls of gpumon itself, from /proc and its own counters."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.model import CallCost
from gpumon.core.procfs import find_command, find_stat

STARTED_SECONDS: Final = time.monotonic()
"""When gpumon started, in monotonic seconds."""


class ProcessCost(NamedTuple):
    """CPU time and memory of a process up to now.

    Attributes:
        pid: The PID.
        cpu_seconds: User and system time.
        memory_bytes: Resident memory.
    """

    pid: int
    cpu_seconds: float
    memory_bytes: int


class CallCosts(NamedTuple):
    """Cost of the driver calls up to a moment.

    Attributes:
        seconds: The moment, in monotonic seconds of the host.
        calls: One entry for each function; empty where they are not counted.
    """

    seconds: float = 0.0
    calls: tuple[CallCost, ...] = ()


class CostSample(NamedTuple):
    """Costs of gpumon up to a moment.

    Attributes:
        at_seconds: The moment, in monotonic seconds of this process.
        running_seconds: How long gpumon has run.
        own: This process; None where /proc cannot be read.
        collectors: Its collector processes, usually one; none for a recording.
        frames_taken: Frames that have arrived.
        frames_merged: Frames that were not drawn, because a newer one had arrived already.
        frames_lost: Frames that were dropped, because the screen did not draw for too long.
        terminal_bytes: Bytes sent to the terminal; None where there is none.
        frames_late: Frames whose sample took longer than the interval.
        calls: Cost of the driver calls.
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
    calls: CallCosts = CallCosts()


def process_cost(pid: int, proc: Path = Path("/proc")) -> ProcessCost | None:
    """CPU time and memory of a process; None if they cannot be read, usually because the process has ended."""
    stat = find_stat(proc / str(pid))
    return None if stat is None else ProcessCost(pid, stat.cpu_seconds, stat.resident_bytes)


def collectors(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """PIDs of the collectors among the children of a process; each of its threads has a separate list."""
    pids: list[int] = []
    with suppress(OSError):
        for children in (proc / str(pid) / "task").glob("*/children"):
            with suppress(OSError):
                pids += map(int, children.read_bytes().split())
    return sorted(pid for pid in pids if "collect/__main__.py" in find_command(proc / str(pid), 4096))
