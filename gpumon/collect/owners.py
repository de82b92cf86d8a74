"""Who holds a device's memory: NVML's three lists of processes as one table, and what none of them owns."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.collect.lanes import retry_after
from gpumon.collect.look import NOT_LOOKED, Shares
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.patience import Patience
from gpumon.collect.processes import ProcessFacts, ProcessTable
from gpumon.collect.readers import Lane
from gpumon.core.model import Process, ProcessKind
from gpumon.core.problems import Problem, ProblemCode

_LISTS: Final = (
    (ProcessKind.COMPUTE, "nvmlDeviceGetComputeRunningProcesses", Lane.PROCESSES),
    (ProcessKind.GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses", Lane.MEDIUM),
    (ProcessKind.MPS, "nvmlDeviceGetMPSComputeRunningProcesses", Lane.MEDIUM),
)
"""Graphics and MPS processes come and go seldom; drivers before R510 have the lists under these names with _v2."""

_FACTS: Final = ("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds")
_TWO_READINGS: Final = Problem(ProblemCode.NOT_READ, "It takes two readings to tell.")
_MEMORY_UNTOLD: Final = Problem(ProblemCode.NOT_SUPPORTED, "The driver does not tell this process's memory.")
_NEEDS_BOTH: Final = Problem(ProblemCode.NOT_READ, "It needs both the memory in use and the processes.")
_RESERVE_IN_USED: Final = Problem(
    ProblemCode.DRIVER_TOO_OLD, "This driver counts its own reserve as memory in use and does not tell how much it is."
)
_NEEDS_ALL: Final = Problem(ProblemCode.NOT_READ, "The memory of one of the processes is not known.")


class Owners(NamedTuple):
    """Who holds a device's memory.

    Attributes:
        processes: The processes on the device, or None when they cannot be listed.
        unattributed_bytes: Memory in use that none of them owns, or None when that cannot be told.
        problems: Why something is missing, by its name in the device's record.
    """

    processes: tuple[Process, ...] | None
    unattributed_bytes: float | None
    problems: Mapping[str, Problem]


class OwnersReader:
    """The owners of one device's memory, read in the lane of the process lists.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        table: Facts of processes, shared by all devices.
    """

    def __init__(self, api: Nvml, handle: Handle, table: ProcessTable) -> None:
        self._api = api
        self._handle = handle
        self._table = table
        self._lists: dict[ProcessKind, dict[int, int | None]] = {}
        self._due = dict.fromkeys(ProcessKind, 0.0)
        self._patience = Patience()
        self._held: Owners | None = None
        self._held_until = 0.0

    def read(self, now: float, uptime: float, readings: Mapping[str, float], shares: Shares = NOT_LOOKED) -> Owners:
        """The owners at ``now``; between two readings of the lists, those of the last one.

        Host CPU is a difference, so the second reading follows the first at once.

        Args:
            now: Monotonic seconds.
            uptime: Seconds since boot.
            readings: The device's readings at the same moment, see `fresh`.
            shares: What each process has of the device's multiprocessors.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._held is not None and now < self._held_until:
            return self._held
        first = self._held is None
        until = now if first else now + Lane.PROCESSES.value
        problems: dict[str, Problem] = {}
        processes: tuple[Process, ...] | None = None
        try:
            listed = self._read_lists(now)
        except ReadingError as failed:
            excuse = self._patience.excuse(failed.problem)
            if excuse is not None and self._held is not None:
                processes = self._held.processes
            problems["processes"] = failed.problem if processes is None or excuse is None else excuse
            until = now if first else now + retry_after(failed.problem, Lane.PROCESSES)
        else:
            self._patience.succeeded()
            total = readings.get("memory_total_bytes")
            processes = tuple(
                _process(pid, kinds, memory, self._table.facts(pid, now, uptime), total=total, shares=shares)
                for pid, (kinds, memory) in listed.items()
            )
        unattributed, why = _unattributed(readings, None if "processes" in problems else processes)
        if why is not None:
            problems["memory_unattributed_bytes"] = why
        self._held_until = until
        self._held = Owners(processes, unattributed, problems)
        return self._held

    def _read_lists(self, now: float) -> dict[int, tuple[list[ProcessKind], int | None]]:
        """By PID the lists in which a process stands, and its device memory.

        The list of compute processes is always read, the others when they are due.
        """
        for kind, call, lane in _LISTS:
            if now < self._due[kind]:
                continue
            pause = lane.value
            try:
                self._lists[kind] = _by_pid(self._api.call_newest(call, f"{call}_v2", self._handle))
            except ReadingError as failed:
                self._lists.pop(kind, None)
                if kind is ProcessKind.COMPUTE:
                    raise
                pause = retry_after(failed.problem, lane)
            if kind is not ProcessKind.COMPUTE:
                self._due[kind] = now + pause
        found: dict[int, tuple[list[ProcessKind], int | None]] = {}
        for kind, held in self._lists.items():
            for pid, memory in held.items():
                kinds, before = found.get(pid, ([], None))
                found[pid] = ([*kinds, kind], memory if before is None else before)
        return found


def _process(
    pid: int,
    kinds: list[ProcessKind],
    memory: int | None,
    facts: ProcessFacts,
    *,
    total: float | None,
    shares: Shares,
) -> Process:
    problems: dict[str, Problem] = {}
    if facts.problem is not None:
        problems = dict.fromkeys(_FACTS, facts.problem)
    elif facts.cpu_percent is None:
        problems["cpu_percent"] = _TWO_READINGS
    share = shares if isinstance(shares, Problem) else shares.get(pid, 0.0)
    if isinstance(share, Problem):
        problems["sm_percent"] = share
    if memory is None:
        problems["memory_bytes"] = _MEMORY_UNTOLD
    elif total is not None and memory > total:
        problems["memory_bytes"] = Problem(ProblemCode.INVALID_VALUE, f"The driver answered {memory} bytes.")
        memory = None
    return Process(
        pid=pid,
        kinds=tuple(kinds),
        memory_bytes=memory,
        user=facts.user,
        command=facts.command,
        cpu_percent=facts.cpu_percent,
        host_memory_bytes=facts.host_memory_bytes,
        age_seconds=facts.age_seconds,
        sm_percent=None if isinstance(share, Problem) else share,
        problems=problems,
    )


def _by_pid(entries: list[Any]) -> dict[int, int | None]:
    """Memory by PID; a process that stands in a list several times holds the sum, if every part of it is known."""
    memory: dict[int, int | None] = {}
    for entry in entries:
        held, before = entry.usedGpuMemory, memory.get(entry.pid, 0)
        memory[entry.pid] = None if held is None or before is None else before + held
    return memory


def fresh(readings: Mapping[str, float], problems: Mapping[str, Problem]) -> Mapping[str, float]:
    """The readings without memory in use that is not of this moment: nothing may be subtracted from that."""
    if "memory_used_bytes" not in problems:
        return readings
    return {metric: value for metric, value in readings.items() if metric != "memory_used_bytes"}


def _unattributed(
    readings: Mapping[str, float], processes: tuple[Process, ...] | None
) -> tuple[float | None, Problem | None]:
    """Memory in use less that of the processes, or why that cannot be told."""
    used = readings.get("memory_used_bytes")
    if used is None or processes is None:
        return None, _NEEDS_BOTH
    if "memory_reserved_bytes" not in readings:
        return None, _RESERVE_IN_USED
    owned = [process.memory_bytes for process in processes]
    if None in owned:
        return None, _NEEDS_ALL
    return max(0, used - sum(memory or 0 for memory in owned)), None
