"""The machine around the GPUs, and collectors of earlier runs that still hang in the driver."""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from gpumon.core.model import Host
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

COLLECTOR_NAME: Final = "gpumon-collect"
"""Name of a collector process in the process list, at most 15 characters."""

RECHECK_SECONDS: Final = 30.0
"""Collectors that were left behind are looked at again this often."""

_NOT_TOLD: Final = Problem(ProblemCode.NOT_FOUND, "This machine does not tell it.")


class HostReader:
    """Reads host load, memory and uptime; CPU is since the previous read."""

    def __init__(self) -> None:
        self._name = safe_text(platform.node(), 64) or None
        self._cpu_count = psutil.cpu_count()
        self._cpu_primed = False

    def read(self) -> Host:
        """The host now. The first read has no CPU figure: it takes two to tell."""
        cpu_percent = psutil.cpu_percent()
        fixed = {"name": self._name, "cpu_count": self._cpu_count}
        problems = {field: _NOT_TOLD for field, value in fixed.items() if value is None}
        if not self._cpu_primed:
            self._cpu_primed = True
            cpu_percent = None
            problems["cpu_percent"] = Problem(ProblemCode.NOT_READ, "It takes two readings to tell.")
        memory = psutil.virtual_memory()
        return Host(
            name=self._name,
            cpu_count=self._cpu_count,
            cpu_percent=cpu_percent,
            load=os.getloadavg(),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            uptime_seconds=round(uptime(), 1),
            problems=problems,
        )


def uptime() -> float:
    """Seconds since boot, suspended time included, as process start times count it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def take_collector_name() -> None:
    """Names this process so that a later run can tell it apart, even when it is half dead and has no command line."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(COLLECTOR_NAME)


class LeftBehind:
    """This user's collectors whose gpumon has gone and that the driver does not let end.

    All of /proc is searched once: what is left behind later belongs to a gpumon that says so itself.

    Args:
        now: Monotonic seconds.
        proc: Root of the proc file system.
    """

    def __init__(self, now: float, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._pids = left_behind_collectors(proc.glob("[0-9]*"), proc)
        self._due = now + RECHECK_SECONDS

    def problem(self, now: float) -> Problem | None:
        """What is said of them, or None when none is left; looks again every `RECHECK_SECONDS`."""
        if self._pids and now >= self._due:
            self._due = now + RECHECK_SECONDS
            self._pids = left_behind_collectors((self._proc / str(pid) for pid in self._pids), self._proc)
        if not self._pids:
            return None
        named = ", ".join(map(str, self._pids))
        return Problem(
            ProblemCode.COLLECTOR_LEFT_BEHIND,
            f"A collector of an earlier gpumon still hangs in the driver (PID {named}).",
            "It ends when its call returns; if it never does, only a reboot clears it.",
        )


def left_behind_collectors(folders: Iterable[Path], proc: Path) -> list[int]:
    """PIDs of those processes among ``folders`` of ``proc`` that are collectors which were left behind."""
    found = []
    own = os.getpid()
    for folder in folders:
        try:
            if (folder / "comm").read_text().strip() != COLLECTOR_NAME or folder.stat().st_uid != os.getuid():
                continue
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if int(folder.name) != own and _is_stuck(folder) and not _is_gpumon(proc / str(parent)):
                found.append(int(folder.name))
        except (OSError, ValueError, IndexError):
            continue
    return sorted(found)


def _is_gpumon(folder: Path) -> bool:
    try:
        return b"gpumon" in (folder / "cmdline").read_bytes()
    except OSError:
        return False


def _is_stuck(folder: Path) -> bool:
    states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in (folder / "task").iterdir()]
    return "D" in states
