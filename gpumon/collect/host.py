"""The host: load, memory, uptime, rates, and collectors of earlier runs that still hang in the driver."""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from gpumon.collect.host_rates import NOT_REPORTED, HostRates
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES
from gpumon.core.model import Host
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

COLLECTOR_NAME: Final = "gpumon-collect"
"""Process name of a collector, at most 15 characters."""

RECHECK_SECONDS: Final = 30.0
"""Time between two checks of the collectors that still hang."""


class HostReader:
    """Reader of the load, memory, uptime and rates of this host; CPU utilization is since the previous read."""

    def __init__(self) -> None:
        self._name = safe_text(platform.node(), 64) or None
        self._cpu_count = psutil.cpu_count()
        self._has_cpu_sample = False
        self._rates = HostRates()

    def read(self) -> Host:
        """The host now. The first read has no CPU utilization and no rates, which need two samples."""
        cpu_percent = psutil.cpu_percent()
        constants = {"name": self._name, "cpu_count": self._cpu_count}
        problems = {field: NOT_REPORTED for field, value in constants.items() if value is None}
        if not self._has_cpu_sample:
            self._has_cpu_sample = True
            cpu_percent = None
            problems["cpu_percent"] = NEEDS_TWO_SAMPLES
        rates, why_missing = self._rates.read()
        memory = psutil.virtual_memory()
        return Host(
            name=self._name,
            cpu_count=self._cpu_count,
            cpu_percent=cpu_percent,
            load=os.getloadavg(),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            uptime_seconds=round(uptime(), 1),
            **rates,
            problems={**problems, **why_missing},
        )


def uptime() -> float:
    """Seconds since boot, including suspended time, on the same clock as process start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def set_process_name() -> None:
    """Set the process name, by which a later run recognizes a collector that hangs and has no command line."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(COLLECTOR_NAME)


class OrphanedCollectors:
    """Collectors of this user that hang in the driver and whose gpumon has ended.

    All of /proc is searched once: a collector that hangs later belongs to a gpumon that reports the collector itself.

    Args:
        now: Monotonic seconds.
        proc: Root of the proc file system.
    """

    def __init__(self, now: float, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._pids = orphaned_collectors(proc.glob("[0-9]*"), proc)
        self._due = now + RECHECK_SECONDS

    def problem(self, now: float) -> Problem | None:
        """The problem that names the collectors, or None without any; checks again every `RECHECK_SECONDS`."""
        if self._pids and now >= self._due:
            self._due = now + RECHECK_SECONDS
            self._pids = orphaned_collectors((self._proc / str(pid) for pid in self._pids), self._proc)
        if not self._pids:
            return None
        pids = ", ".join(map(str, self._pids))
        return Problem(
            ProblemCode.COLLECTOR_LEFT_BEHIND,
            f"A collector of an earlier gpumon still hangs in the driver (PID {pids}).",
            "The collector ends when its driver call returns. If the call never returns, reboot this host.",
        )


def orphaned_collectors(folders: Iterable[Path], proc: Path) -> list[int]:
    """PIDs of the orphaned collectors among the process folders of ``proc``."""
    pids = []
    own = os.getpid()
    for folder in folders:
        try:
            if (folder / "comm").read_text().strip() != COLLECTOR_NAME or folder.stat().st_uid != os.getuid():
                continue
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if int(folder.name) != own and _is_stuck(folder) and not _is_gpumon(proc / str(parent)):
                pids.append(int(folder.name))
        except (OSError, ValueError, IndexError):
            continue
    return sorted(pids)


def _is_gpumon(folder: Path) -> bool:
    try:
        return b"gpumon" in (folder / "cmdline").read_bytes()
    except OSError:
        return False


def _is_stuck(folder: Path) -> bool:
    states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in (folder / "task").iterdir()]
    return "D" in states
