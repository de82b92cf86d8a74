"""The host and a process while it is observed: cores, run queues, workers, other processes, waits for disks."""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.control_groups import control_groups, cpu_quota
from gpumon.core.groups import grouped
from gpumon.core.procfs import (
    TICKS_PER_SECOND,
    ProcessStat,
    ThreadTimes,
    find_command,
    read_stat,
    read_status,
    read_thread_times,
)
from gpumon.core.stacks import ThreadStack
from gpumon.distributed.environment import read_environment
from gpumon.insight.bottlenecks.causes.loop import DEBUG_SETTINGS
from gpumon.insight.bottlenecks.slowness_evidence import HostEvidence
from gpumon.stacks.classify import is_waiting
from gpumon.stacks.tables import line_text, program_frame

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
    children = grouped((times.parent, child) for child, times in processes.items())
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


_SETTINGS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", *(setting.name for setting in DEBUG_SETTINGS))
_MIN_CORES: Final = 0.1
_MIN_PYTHON_CORES: Final = 0.1
_MAX_OTHERS: Final = 5
_MIN_OTHER_CORES: Final = 0.25
_COMMAND_LENGTH: Final = 60
_MAX_WORKERS: Final = 512


class _Moment(NamedTuple):
    """Everything that is counted, at one moment."""

    monotonic: float
    processes: dict[int, ProcessStat]
    threads: dict[int, ThreadTimes]
    busy_seconds: float | None
    quota: Quota | None


class HostObserver:
    """Watches the host and a process from its creation until `evidence` is called."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._folder = proc / str(pid)
        self._begin = self._read()
        self._workers = self._find_workers(self._begin.processes)
        self._worker_times = self._times_of(self._workers)
        self._states: Counter[str] = Counter()
        self._worker_states: Counter[str] = Counter()
        self._thread_lines: dict[int, Counter[str]] = {}
        self._thread_names: dict[int, str] = {}
        self._stack_polls = 0

    def poll(self) -> None:
        """Look at the states of the main thread and of the workers; to be called several times a second."""
        with suppress(OSError):
            self._states[read_stat(self._folder / "task" / str(self._pid)).state] += 1
        for worker in self._workers:
            with suppress(OSError):
                self._worker_states[read_stat(self._proc / str(worker)).state] += 1

    def add_stacks(self, threads: Sequence[ThreadStack]) -> None:
        """Take the stacks of all threads at one moment."""
        self._stack_polls += 1
        for thread in threads:
            if thread.is_main or thread.native_id is None or is_waiting(thread.frames):
                continue
            line = line_text(program_frame(thread.frames))
            if line:
                self._thread_names[thread.native_id] = thread.name
                self._thread_lines.setdefault(thread.native_id, Counter())[line] += 1

    def evidence(self) -> HostEvidence:
        """What has happened since the creation."""
        begin, end = self._begin, self._read()
        seconds = max(1e-3, end.monotonic - begin.monotonic)
        main, others = _thread_changes(self._pid, begin, end)
        family = {self._pid, *descendants(self._pid, end.processes)}
        cores = {
            pid: (times.cpu_seconds - (begin.processes[pid].cpu_seconds if pid in begin.processes else 0.0)) / seconds
            for pid, times in end.processes.items()
        }
        workers = self._find_workers(end.processes) or self._workers
        own = end.processes.get(self._pid)
        before = begin.processes.get(self._pid)
        ended = 0.0 if own is None or before is None else (own.ended_cpu_seconds - before.ended_cpu_seconds) / seconds
        busy = None if begin.busy_seconds is None or end.busy_seconds is None else end.busy_seconds - begin.busy_seconds
        environment, _ = read_environment(self._folder)
        affinity = allowed_cores(self._folder)
        limits = [limit for limit in (affinity, None if end.quota is None else end.quota.cores) if limit is not None]
        return HostEvidence(
            seconds=seconds,
            cpu_count=os.cpu_count(),
            allowed_cores=min(limits, default=None),
            host_cpu_cores=None if busy is None else busy / seconds,
            process_cpu_cores=sum(cores.get(pid, 0.0) for pid in family) + ended if own is not None else None,
            main_run_queue_share=None if main is None else min(1.0, main.queued_seconds / seconds),
            busy_threads_count=sum(
                times.cpu_seconds + times.queued_seconds >= _MIN_CORES * seconds for times in others.values()
            ),
            quota_throttled_share=_throttled(begin.quota, end.quota),
            disk_wait_share=_share_of_state(self._states, "D"),
            major_faults_count=None if own is None or before is None else own.major_faults - before.major_faults,
            workers_count=len(workers),
            workers_cpu_cores=sum(cores.get(pid, 0.0) for pid in workers) + ended if workers else None,
            workers_queued_share=self._queued_share(workers),
            workers_disk_wait_share=_share_of_state(self._worker_states, "D"),
            busiest_others=self._others(cores, family, end.processes),
            python_threads=self._python_threads(others, seconds),
            settings={name: environment[name] for name in _SETTINGS if name in environment},
        )

    def _read(self) -> _Moment:
        return _Moment(
            time.monotonic(),
            read_processes(self._proc),
            read_threads(self._folder),
            host_busy_seconds(self._proc),
            read_quota(self._folder),
        )

    def _find_workers(self, processes: Mapping[int, ProcessStat]) -> tuple[int, ...]:
        """The children that are workers of a DataLoader: forks of the process, or started by multiprocessing."""
        own = find_command(self._proc / str(self._pid)).strip()
        workers = []
        for pid in sorted(descendants(self._pid, processes))[:_MAX_WORKERS]:
            command = find_command(self._proc / str(pid)).strip()
            is_spawned = "multiprocessing.spawn" in command or "multiprocessing.forkserver" in command
            if own and (command == own or (is_spawned and "spawn_main" in command)):
                workers.append(pid)
        return tuple(workers)

    def _times_of(self, workers: Sequence[int]) -> dict[int, ThreadTimes]:
        times = {pid: read_main_thread(self._proc / str(pid)) for pid in workers}
        return {pid: value for pid, value in times.items() if value is not None}

    def _queued_share(self, workers: Sequence[int]) -> float | None:
        """Of the time in which the workers were ready to run since the creation, the part without a core."""
        zero = ThreadTimes(0.0, 0.0)
        ready = queued = 0.0
        for pid, times in self._times_of(workers).items():
            before = self._worker_times.get(pid, zero)
            queued += times.queued_seconds - before.queued_seconds
            ready += times.cpu_seconds - before.cpu_seconds + times.queued_seconds - before.queued_seconds
        return queued / ready if ready > 0 else None

    def _others(
        self, cores: Mapping[int, float], family: set[int], processes: Mapping[int, ProcessStat]
    ) -> tuple[tuple[str, float], ...]:
        """The processes outside of this one and of gpumon that use the most CPU, with their cores."""
        own = os.getpid()
        excluded = family | {own} | descendants(own, processes)
        busiest = sorted(
            ((used, pid) for pid, used in cores.items() if pid not in excluded and used >= _MIN_OTHER_CORES),
            reverse=True,
        )[:_MAX_OTHERS]
        return tuple((self._name(pid, processes), used) for used, pid in busiest)

    def _name(self, pid: int, processes: Mapping[int, ProcessStat]) -> str:
        command = find_command(self._proc / str(pid)).strip()[:_COMMAND_LENGTH] or processes[pid].name
        return f"{command} (PID {pid})"

    def _python_threads(self, others: Mapping[int, ThreadTimes], seconds: float) -> dict[str, str]:
        """The line of each other Python thread that uses the CPU, by its name, the busiest first."""
        busy = [
            (others[thread].cpu_seconds, thread)
            for thread, lines in self._thread_lines.items()
            if thread in others
            and others[thread].cpu_seconds >= _MIN_PYTHON_CORES * seconds
            and sum(lines.values()) >= self._stack_polls / 3
        ]
        return {
            self._thread_names[thread] or f"thread {thread}": self._thread_lines[thread].most_common(1)[0][0]
            for _, thread in sorted(busy, reverse=True)
        }


def _thread_changes(pid: int, begin: _Moment, end: _Moment) -> tuple[ThreadTimes | None, dict[int, ThreadTimes]]:
    """The times of the main thread, and of the others by thread ID, between two moments."""
    zero = ThreadTimes(0.0, 0.0)
    changes = {
        thread: ThreadTimes(
            times.cpu_seconds - begin.threads.get(thread, zero).cpu_seconds,
            times.queued_seconds - begin.threads.get(thread, zero).queued_seconds,
        )
        for thread, times in end.threads.items()
    }
    return changes.pop(pid, None), changes


def _share_of_state(states: Mapping[str, int], letter: str) -> float | None:
    total = sum(states.values())
    return states.get(letter, 0) / total if total else None


def _throttled(begin: Quota | None, end: Quota | None) -> float | None:
    if begin is None or end is None or end.periods <= begin.periods:
        return None
    return (end.throttled - begin.throttled) / (end.periods - begin.periods)
