"""CPU times of processes and threads from /proc, at one moment."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.control_groups import control_groups, cpu_quota
from gpumon.core.procfs import TICKS_PER_SECOND, ProcessStat, ThreadTimes, read_stat, read_status, read_thread_times

MAX_THREADS: Final = 1024
_MAX_PROCESSES: Final = 20_000


def read_processes(proc: Path) -> dict[int, ProcessStat]:
    """All processes that are visible, by PID."""
    result: dict[int, ProcessStat] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and len(result) < _MAX_PROCESSES:
            with suppress(OSError):
                result[int(folder.name)] = read_stat(folder)
    return result


def read_main_thread(folder: Path) -> ThreadTimes | None:
    """The main thread of a process; None if it has ended, or the kernel keeps no such statistics."""
    with suppress(OSError):
        return read_thread_times(folder)
    return None


def read_threads(folder: Path) -> dict[int, ThreadTimes]:
    """The threads of a process, by thread ID; empty where the kernel keeps no such statistics."""
    result: dict[int, ThreadTimes] = {}
    with suppress(OSError):
        for task in islice((folder / "task").iterdir(), MAX_THREADS):
            with suppress(OSError):
                result[int(task.name)] = read_thread_times(task)
    return result


def descendants(pid: int, processes: Mapping[int, ProcessStat]) -> set[int]:
    """The PIDs of the children of a process, of their children, and so on."""
    children: dict[int, list[int]] = {}
    for child, times in processes.items():
        children.setdefault(times.parent, []).append(child)
    result: set[int] = set()
    open_pids = [pid]
    while open_pids:
        for child in children.get(open_pids.pop(), ()):
            if child not in result:
                result.add(child)
                open_pids.append(child)
    return result


def host_busy_seconds(proc: Path) -> float | None:
    """CPU time of everything on the host so far, without the time of idle cores and of waits for disks."""
    with suppress(OSError, ValueError, IndexError):
        with (proc / "stat").open("rb") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / TICKS_PER_SECOND
    return None


def allowed_cores(folder: Path) -> int | None:
    """The number of cores that a process may use by its affinity."""
    with suppress(OSError, KeyError, ValueError):
        return sum(map(_range_length, read_status(folder)["Cpus_allowed_list"].split(",")))
    return None


def _range_length(text: str) -> int:
    first, _, last = text.partition("-")
    return int(last or first) - int(first) + 1


class Quota(NamedTuple):
    """The CPU quota of a cgroup, and how often it has stopped its processes.

    Attributes:
        cores: The quota in cores.
        periods: Periods of the quota so far.
        throttled: Periods in which it stopped them.
    """

    cores: float
    periods: int
    throttled: int


def read_quota(folder: Path, root: Path = Path("/sys/fs/cgroup")) -> Quota | None:
    """The quota of the cgroup of a process; None if there is none."""
    for group in control_groups(folder, root):
        cores = cpu_quota(group)
        with suppress(OSError, ValueError):
            if cores is not None:
                rows = (row.split() for row in (group / "cpu.stat").read_text("utf-8").splitlines())
                counts = {row[0]: int(row[1]) for row in rows if len(row) == 2}
                return Quota(cores, counts.get("nr_periods", 0), counts.get("nr_throttled", 0))
    return None
