"""The processes on a device, merged from NVML's three process lists, and the memory that belongs to none of them."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from gpumon.collect.activity import SmShares
from gpumon.collect.nvml import Handle, Nvml
from gpumon.collect.on_demand import NOT_SELECTED
from gpumon.collect.processes import ProcessFacts, ProcessTable
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES, Period, PolledValue
from gpumon.core.model import Process, ProcessKind
from gpumon.core.problems import Problem, ProblemCode

_OTHER_LISTS: Final = (
    (ProcessKind.GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses"),
    (ProcessKind.MPS, "nvmlDeviceGetMPSComputeRunningProcesses"),
)
"""Graphics and MPS processes start and end rarely. Drivers before R510 have the same functions with the suffix _v2."""

PROCESS_LIST_RETRY_SECONDS: Final = 10.0
"""Time until gpumon queries a refused process list again. Without the list a host looks idle, so a fault that passes
must not leave a gap of minutes; one call in ten seconds costs less than a list that works."""

_MEMORY_NOT_REPORTED: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "The driver does not report the memory of this process."
)
_NEEDS_BOTH: Final = Problem(ProblemCode.NOT_READ, "Needs both the memory in use and the process list.")
_RESERVED_IN_USED: Final = Problem(
    ProblemCode.DRIVER_TOO_OLD,
    "This driver counts reserved memory as memory in use and does not report how much is reserved.",
)
_NEEDS_ALL: Final = Problem(ProblemCode.NOT_READ, "The memory of one of the processes is unknown.")


class DeviceProcesses(NamedTuple):
    """The processes on a device.

    Attributes:
        processes: The processes, or None if they cannot be listed.
        unattributed_bytes: Memory in use that belongs to none of them, or None if it is unknown.
        problems: Why a value is missing or stale, by its name in the device's record.
    """

    processes: tuple[Process, ...] | None
    unattributed_bytes: float | None
    problems: Mapping[str, Problem]


class ProcessListReader:
    """The processes of one device, read every ``period``, and every two seconds at most while no screen shows them.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        table: Facts about processes, shared by all devices.
        period: Time between two readings.
    """

    def __init__(self, api: Nvml, handle: Handle, table: ProcessTable, period: Period = Period.ONE_SECOND) -> None:
        self._api = api
        self._handle = handle
        self._table = table
        self._other_lists = [
            (
                kind,
                call,
                PolledValue[dict[int, int | None]](
                    Period.TEN_SECONDS, max_stale_polls=0, retry_seconds=PROCESS_LIST_RETRY_SECONDS
                ),
            )
            for kind, call in _OTHER_LISTS
        ]
        # Host CPU is a difference, so the second poll follows the first one in the next sweep.
        self._polled = PolledValue[tuple[Process, ...]](
            period, first_period=0.0, retry_seconds=PROCESS_LIST_RETRY_SECONDS
        )
        self._last: DeviceProcesses | None = None

    def read(
        self, now: float, uptime: float, readings: Mapping[str, float], shares: SmShares = NOT_SELECTED
    ) -> DeviceProcesses:
        """The processes at ``now``; between two polls, the last result.

        Args:
            now: Monotonic seconds.
            uptime: Seconds since boot.
            readings: The device's readings of the same sweep, see `current_readings`.
            shares: Share of the device's multiprocessors, by PID.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._last is not None and now < self._polled.due:
            return self._last
        total = readings.get("memory_total_bytes")
        processes = self._polled.poll(
            now,
            lambda: tuple(
                _process(pid, kinds, memory, self._table.facts(pid, now, uptime), total=total, shares=shares)
                for pid, (kinds, memory) in self._read_lists(now).items()
            ),
        )
        problem = self._polled.problem
        if shares is NOT_SELECTED and self._last is not None and problem is None:
            self._polled.due = max(self._polled.due, now + Period.TWO_SECONDS)
        problems = {} if problem is None else {"processes": problem}
        unattributed, why_unknown = _unattributed(readings, processes if problem is None else None)
        if why_unknown is not None:
            problems["memory_unattributed_bytes"] = why_unknown
        self._last = DeviceProcesses(processes, unattributed, problems)
        return self._last

    def _read_lists(self, now: float) -> dict[int, tuple[list[ProcessKind], int | None]]:
        """The lists that contain a process, and its device memory, by PID.

        Only the list of compute processes is read every time; if that fails, the process list is unknown.
        """
        lists = {ProcessKind.COMPUTE: self._read_list("nvmlDeviceGetComputeRunningProcesses")}
        for kind, call, polled in self._other_lists:
            lists[kind] = polled.poll(now, partial(self._read_list, call)) or {}
        merged: dict[int, tuple[list[ProcessKind], int | None]] = {}
        for kind, memory_by_pid in lists.items():
            for pid, memory in memory_by_pid.items():
                kinds, known_memory = merged.get(pid, ([], None))
                merged[pid] = ([*kinds, kind], memory if known_memory is None else known_memory)
        return merged

    def _read_list(self, call: str) -> dict[int, int | None]:
        """Memory by PID. Several entries of one process are added up; the sum is None if one of them is unknown."""
        memory: dict[int, int | None] = {}
        entries: list[Any] = self._api.call_newest(call, f"{call}_v2", self._handle)
        for entry in entries:
            used, known = entry.usedGpuMemory, memory.get(entry.pid, 0)
            memory[entry.pid] = None if used is None or known is None else known + used
        return memory


def _process(
    pid: int,
    kinds: list[ProcessKind],
    memory: int | None,
    facts: ProcessFacts,
    *,
    total: float | None,
    shares: SmShares,
) -> Process:
    problems: dict[str, Problem] = {}
    if facts.problem is not None:
        problems = dict.fromkeys(("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds"), facts.problem)
    elif facts.cpu_percent is None:
        problems["cpu_percent"] = NEEDS_TWO_SAMPLES
    share = shares if isinstance(shares, Problem) else shares.get(pid, 0.0)
    if isinstance(share, Problem):
        problems["sm_percent"] = share
    if memory is None:
        problems["memory_bytes"] = _MEMORY_NOT_REPORTED
    elif total is not None and memory > total:
        reason = f"The driver returned {memory} bytes, more than the GPU has."
        problems["memory_bytes"] = Problem(ProblemCode.INVALID_VALUE, reason)
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
        start_ticks=facts.start_ticks,
        problems=problems,
    )


def current_readings(readings: Mapping[str, float], problems: Mapping[str, Problem]) -> Mapping[str, float]:
    """The readings without a stale ``memory_used_bytes``, from which process memory must not be subtracted."""
    if "memory_used_bytes" not in problems:
        return readings
    return {metric: value for metric, value in readings.items() if metric != "memory_used_bytes"}


def _unattributed(
    readings: Mapping[str, float], processes: tuple[Process, ...] | None
) -> tuple[float | None, Problem | None]:
    """Memory in use minus the memory of the processes, or why it is unknown."""
    used = readings.get("memory_used_bytes")
    if used is None or processes is None:
        return None, _NEEDS_BOTH
    if "memory_reserved_bytes" not in readings:
        return None, _RESERVED_IN_USED
    process_memory = [process.memory_bytes for process in processes]
    if None in process_memory:
        return None, _NEEDS_ALL
    return max(0, used - sum(memory or 0 for memory in process_memory)), None
