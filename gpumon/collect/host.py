"""The host: load, memory, uptime, rates, and collectors of earlier runs that still hang in the driver."""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.collect.host_rates import NOT_REPORTED, HostRates
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES, Period, PolledValue
from gpumon.core.model import Host
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import find_command, read_meminfo, read_stat, uptime
from gpumon.core.text import safe_text

COLLECTOR_NAME: Final = "gpumon-collect"
"""Process name of a collector, at most 15 characters."""

RECHECK_SECONDS: Final = 30.0
"""Time between two checks of the collectors that still hang."""


_IDLE_FIELDS: Final = (3, 4)
"""Position of idle and iowait among the times of a CPU in /proc/stat."""
_MAX_CPU_FIELDS: Final = 8
"""Times of guests, which follow, are part of those before."""


class HostReader:
    """Reader of the load, memory, uptime and rates of this host; CPU utilization is since the previous read.

    Args:
        proc: Root of the proc file system.
        period: Time between two readings: to list the interrupts of many cores takes the kernel a millisecond.
    """

    def __init__(self, proc: Path = Path("/proc"), period: Period = Period.EVERY_SWEEP) -> None:
        self._name = safe_text(platform.node(), 64) or None
        self._cpu_count = os.cpu_count()
        self._proc = proc
        self._cpu_times: tuple[int, int] | None = None
        self._rates = HostRates(period=period)
        self._polled = PolledValue[Host](period)

    def read(self) -> Host:
        """The host at the last reading. The first one has no CPU utilization and no rates, which need two samples."""
        now = uptime()
        host = self._polled.poll(now, self._read)
        assert host is not None, "no call of a driver fails here"
        if NEEDS_TWO_SAMPLES in host.problems.values():
            self._polled.due = now
        return host

    def _read(self) -> Host:
        try:
            memory = read_meminfo(self._proc)
        except OSError:
            memory = {}
        total_bytes, available_bytes = memory.get("MemTotal"), memory.get("MemAvailable")
        values = {
            "name": self._name,
            "cpu_count": self._cpu_count,
            "memory_total_bytes": total_bytes,
            "memory_available_bytes": available_bytes,
        }
        problems = {field: NOT_REPORTED for field, value in values.items() if value is None}
        cpu_percent, cpu_problem = self._read_cpu_percent()
        if cpu_problem is not None:
            problems["cpu_percent"] = cpu_problem
        rates, why_missing = self._rates.read()
        return Host(
            name=self._name,
            cpu_count=self._cpu_count,
            cpu_percent=cpu_percent,
            load=os.getloadavg(),
            memory_total_bytes=total_bytes,
            memory_available_bytes=available_bytes,
            uptime_seconds=round(uptime(), 1),
            **rates,
            problems={**problems, **why_missing},
        )

    def _read_cpu_percent(self) -> tuple[float | None, Problem | None]:
        """Share of time in which the CPUs were not idle since the last read."""
        try:
            with (self._proc / "stat").open("rb") as file:
                times = [int(field) for field in file.readline().split()[1 : 1 + _MAX_CPU_FIELDS]]
            idle = sum(times[position] for position in _IDLE_FIELDS)
        except (OSError, ValueError, IndexError):
            return None, NOT_REPORTED
        before, self._cpu_times = self._cpu_times, (sum(times), idle)
        if before is None:
            return None, NEEDS_TWO_SAMPLES
        total, idle = sum(times) - before[0], idle - before[1]
        if total <= 0:  # two reads within one clock tick
            return None, NEEDS_TWO_SAMPLES
        return round(100 * min(1.0, max(0.0, 1 - idle / total)), 1), None  # the kernel lets iowait decrease


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
            parent = read_stat(folder).parent
            if int(folder.name) != own and _is_stuck(folder) and "gpumon" not in find_command(proc / str(parent), 4096):
                pids.append(int(folder.name))
        except OSError:
            continue
    return sorted(pids)


def _is_stuck(folder: Path) -> bool:
    return any(read_stat(task).state == "D" for task in (folder / "task").iterdir())
