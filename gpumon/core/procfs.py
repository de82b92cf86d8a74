"""What the kernel reports in /proc and /sys: the files of a process, the memory of the host, and how it names devices.

These files are parsed here only, except in the probe and in workloads, whose interpreter has no gpumon.
Every reader but `find_text` raises OSError if the process has ended, or if this user may not read the file.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.text import safe_bytes

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NANOSECONDS: Final = 1e9
_MEMINFO_LINES: Final = 4
"""The first lines of ``/proc/meminfo``, which are read; about fifty follow."""
_MAX_FILE_BYTES: Final = 4096
_MAX_OPEN_FILES: Final = 4096
_NUMBERS: Final = itemgetter(1, 9, 11, 12, 13, 14, 17, 19, 21, 36, 49)
"""Positions of the integers of `ProcessStat` among the fields after the name."""


class ProcessStat(NamedTuple):
    """The file ``stat`` of a process or a thread, see proc_pid_stat(5).

    Attributes:
        name: The name that the kernel has, at most 15 bytes of any content.
        state: The letter of its state: R, S, D, Z, T, t, X, I.
        parent: PID of its parent.
        major_faults: Pages that it has read from disk.
        user_ticks: CPU time in user mode, in clock ticks.
        system_ticks: CPU time in the kernel, in clock ticks.
        ended_user_ticks: User time of its children that have ended and were waited for, in clock ticks.
        ended_system_ticks: Their time in the kernel, in clock ticks.
        threads: Number of threads.
        start_ticks: Start time in clock ticks since boot, which distinguishes it from a later process with its PID.
        resident_pages: Pages in memory.
        last_core: The core on which it ran last.
        wait_status: How it has ended, as wait(2) reports it; 0 while it runs, or if this user may not read it.
    """

    name: str
    state: str
    parent: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    ended_user_ticks: int
    ended_system_ticks: int
    threads: int
    start_ticks: int
    resident_pages: int
    last_core: int
    wait_status: int

    @property
    def has_ended(self) -> bool:
        """Whether it is a zombie, or is about to disappear."""
        return self.state in {"Z", "X", "x"}

    @property
    def cpu_seconds(self) -> float:
        """CPU time of its threads so far."""
        return (self.user_ticks + self.system_ticks) / TICKS_PER_SECOND

    @property
    def ended_cpu_seconds(self) -> float:
        """CPU time of its children that have ended and were waited for."""
        return (self.ended_user_ticks + self.ended_system_ticks) / TICKS_PER_SECOND

    @property
    def resident_bytes(self) -> int:
        """Memory that it occupies."""
        return self.resident_pages * _PAGE_BYTES


class ThreadTimes(NamedTuple):
    """A thread.

    Attributes:
        cpu_seconds: Its CPU time so far.
        queued_seconds: How long it was ready to run and had no core, so far.
    """

    cpu_seconds: float
    queued_seconds: float


def read_stat(folder: Path | str) -> ProcessStat:
    """Read the state of a process or a thread. The name may contain spaces, parentheses and line breaks.

    Args:
        folder: Its folder, such as ``/proc/7``.

    Raises:
        OSError: It has ended, or this user may not see it.
    """
    head, _, tail = read_small(f"{folder}/stat").rpartition(b")")
    fields = tail.split()
    try:
        return ProcessStat(
            head.partition(b"(")[2].decode("utf-8", "replace"), fields[0].decode(), *map(int, _NUMBERS(fields))
        )
    except (ValueError, IndexError):
        raise ProcessLookupError(f"{folder}/stat is incomplete") from None


def find_stat(folder: Path | str) -> ProcessStat | None:
    """The state of a process; None if it has ended, or if this user may not see it."""
    try:
        return read_stat(folder)
    except OSError:
        return None


def read_same_stat(folder: Path | str, start_ticks: int) -> ProcessStat:
    """Read the state of the process that started at a time.

    Raises:
        OSError: It has ended, perhaps because another process has its PID.
    """
    stat = read_stat(folder)
    if stat.start_ticks != start_ticks:
        raise ProcessLookupError("another process has this PID")
    return stat


def read_status(folder: Path | str) -> dict[str, str]:
    """The values of the file ``status`` by their names; ``Uid`` is the real, effective, saved and file system ID."""
    with open(f"{folder}/status", "rb") as file:  # noqa: PTH123 - the folder may be a string
        lines = file.read().decode("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def effective_uid(folder: Path | str) -> int:
    """The effective user ID. The files of a process belong to root if it has changed its user.

    Raises:
        OSError: It has ended, or this user may not see it.
    """
    try:
        return int(read_status(folder)["Uid"].split()[1])
    except (KeyError, ValueError, IndexError):
        raise ProcessLookupError(f"{folder}/status is incomplete") from None


def read_command(folder: Path | str, length: int = 512) -> str:
    """The command line as safe text; empty for a zombie, a thread of the kernel, or one that erased its arguments."""
    return safe_bytes(read_small(f"{folder}/cmdline").rstrip(b"\0").replace(b"\0", b" "), length)


def find_command(folder: Path | str, length: int = 512) -> str:
    """The command line as safe text; empty also if the process has ended, or if this user may not see it."""
    try:
        return read_command(folder, length)
    except OSError:
        return ""


def read_title(folder: Path | str) -> str:
    """The command line as safe text; of a process without one its name in brackets, as ps shows it."""
    return read_command(folder) or f"[{safe_bytes(read_small(f'{folder}/comm').rstrip())}]"


def nvidia_files(folder: Path | str) -> Iterator[str]:
    """The NVIDIA device files that a process has open, once for each time.

    Raises:
        PermissionError: This user may not see its open files.
    """
    with os.scandir(f"{folder}/fd") as entries:
        for _, entry in zip(range(_MAX_OPEN_FILES), entries, strict=False):
            with suppress(FileNotFoundError):  # closed since then
                target = os.readlink(entry.path)  # noqa: PTH115 - thousands of them
                if target.startswith("/dev/nvidia"):
                    yield target


def read_thread_times(folder: Path | str) -> ThreadTimes:
    """The file ``schedstat`` of a thread, which not every kernel has.

    Args:
        folder: The folder of a thread, or of a process for its main thread.
    """
    fields = read_small(f"{folder}/schedstat").split()
    try:
        return ThreadTimes(int(fields[0]) / _NANOSECONDS, int(fields[1]) / _NANOSECONDS)
    except (ValueError, IndexError):
        raise ProcessLookupError(f"{folder}/schedstat is incomplete") from None


def read_meminfo(proc: Path = Path("/proc")) -> dict[str, int]:
    """The host's memory in bytes by the kernel's names: ``MemTotal`` and ``MemAvailable``; empty without such a file.

    Args:
        proc: Root of the proc file system.
    """
    sizes: dict[str, int] = {}
    with suppress(FileNotFoundError, PermissionError):
        for line in read_small(f"{proc}/meminfo").split(b"\n", _MEMINFO_LINES)[:_MEMINFO_LINES]:
            name, _, size = line.partition(b":")
            fields = size.split()
            if len(fields) == 2 and fields[0].isdigit():
                sizes[name.decode(errors="replace")] = int(fields[0]) << 10
    return sizes


def uptime() -> float:
    """Seconds since boot, including suspended time, on the same clock as the start times of processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_seconds(start_ticks: int) -> float:
    """The age of a process; negative if it started after the clock was read.

    Args:
        start_ticks: Its start time in clock ticks since boot.
    """
    return uptime() - start_ticks / TICKS_PER_SECOND


def sysfs_bus_id(nvml_bus_id: str) -> str:
    """The PCI bus ID as the kernel writes it, ``0000:1b:00.0``: NVML writes the domain with eight digits."""
    domain, _, rest = nvml_bus_id.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def find_text(path: Path) -> str:
    """The text of a file of /proc or /sys, without the line break; empty if there is none, or it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def read_small(path: str) -> bytes:
    """At most 4096 bytes of a file of /proc: without the objects of `open`, which take as long as the read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)
