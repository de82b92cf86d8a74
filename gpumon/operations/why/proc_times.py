"""CPU times of processes and threads from /proc, at one moment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_NANOSECONDS: Final = 1e9
MAX_THREADS: Final = 1024
_MAX_PROCESSES: Final = 20_000


class ProcessTimes(NamedTuple):
    """A process.

    Attributes:
        parent: PID of its parent.
        name: Its name, as the kernel has it.
        state: The letter of its state.
        cpu_seconds: CPU time of its threads so far.
        ended_seconds: CPU time of its children that have ended, so far.
        faults: Pages read from disk so far.
    """

    parent: int
    name: str
    state: str
    cpu_seconds: float
    ended_seconds: float
    faults: int


class ThreadTimes(NamedTuple):
    """A thread.

    Attributes:
        cpu_seconds: Its CPU time so far.
        queued_seconds: How long it was ready to run and did not, so far.
    """

    cpu_seconds: float
    queued_seconds: float


def read_processes(proc: Path) -> dict[int, ProcessTimes]:
    """All processes that are visible, by PID."""
    result: dict[int, ProcessTimes] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and len(result) < _MAX_PROCESSES:
            with suppress(OSError, ValueError, IndexError):
                result[int(folder.name)] = read_process(folder)
    return result


def read_process(folder: Path) -> ProcessTimes:
    """A process or a thread.

    Args:
        folder: Its folder in /proc.

    Raises:
        OSError: It has ended.
        ValueError: The kernel writes another format.
        IndexError: The same.
    """
    head, _, tail = (folder / "stat").read_bytes().rpartition(b")")
    fields = tail.split()
    ticks, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    state, faults = fields[0].decode(), int(fields[9])
    return ProcessTimes(int(fields[1]), name, state, ticks / _TICKS_PER_SECOND, ended / _TICKS_PER_SECOND, faults)


def read_main_thread(folder: Path) -> ThreadTimes | None:
    """The main thread of a process; None if it has ended, or the kernel keeps no such statistics."""
    with suppress(OSError, ValueError, IndexError):
        fields = (folder / "schedstat").read_bytes().split()
        return ThreadTimes(int(fields[0]) / _NANOSECONDS, int(fields[1]) / _NANOSECONDS)
    return None


def read_threads(folder: Path) -> dict[int, ThreadTimes]:
    """The threads of a process, by thread ID; empty where the kernel keeps no such statistics."""
    result: dict[int, ThreadTimes] = {}
    with suppress(OSError):
        for task in islice((folder / "task").iterdir(), MAX_THREADS):
            with suppress(OSError, ValueError, IndexError):
                fields = (task / "schedstat").read_bytes().split()
                result[int(task.name)] = ThreadTimes(int(fields[0]) / _NANOSECONDS, int(fields[1]) / _NANOSECONDS)
    return result


def descendants(pid: int, processes: Mapping[int, ProcessTimes]) -> set[int]:
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
        return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_SECOND
    return None


def allowed_cores(folder: Path) -> int | None:
    """The number of cores that a process may use by its affinity."""
    with suppress(OSError, ValueError):
        for row in (folder / "status").read_text("utf-8", "replace").splitlines():
            if row.startswith("Cpus_allowed_list:"):
                return sum(_range_length(part) for part in row.partition(":")[2].strip().split(","))
    return None


def _range_length(text: str) -> int:
    first, _, last = text.partition("-")
    return int(last or first) - int(first) + 1


class Quota(NamedTuple):
    """The CPU quota of a cgroup, and how often it has stopped its processes.

    Attributes:
        cores: The quota in cores; None without one.
        periods: Periods of the quota so far.
        throttled: Periods in which it stopped them.
    """

    cores: float | None
    periods: int
    throttled: int


def read_quota(folder: Path, root: Path = Path("/sys/fs/cgroup")) -> Quota | None:
    """The quota of the cgroup of a process; None if there is none.

    Args:
        folder: The folder of the process in /proc.
        root: Where the cgroups are.
    """
    for cgroup in _cgroups(folder, root):
        with suppress(OSError, ValueError, KeyError):
            rows = (row.split() for row in (cgroup / "cpu.stat").read_text("utf-8").splitlines())
            counts = {row[0]: int(row[1]) for row in rows if len(row) == 2}
            cores = _quota_cores(cgroup)
            if cores is not None:
                return Quota(cores, counts.get("nr_periods", 0), counts.get("nr_throttled", 0))
    return None


def _cgroups(folder: Path, root: Path) -> Iterator[Path]:
    """Where the CPU controller of a process may be: the complete path, or the root of a container's namespace."""
    paths = []
    with suppress(OSError):
        for row in (folder / "cgroup").read_text("utf-8", "replace").splitlines():
            _, controllers, path = row.split(":", 2)
            if controllers in {"", "cpu,cpuacct", "cpu", "cpuacct,cpu"}:
                paths.append((controllers, path.lstrip("/")))
    for controllers, path in paths:
        base = root / controllers if controllers else root
        yield base / path
        yield base


def _quota_cores(cgroup: Path) -> float | None:
    maximum = cgroup / "cpu.max"
    if maximum.exists():
        quota, period = maximum.read_text("utf-8").split()[:2]
    else:
        quota = (cgroup / "cpu.cfs_quota_us").read_text("utf-8").strip()
        period = (cgroup / "cpu.cfs_period_us").read_text("utf-8").strip()
    return None if quota in {"max", "-1"} else int(quota) / int(period)
