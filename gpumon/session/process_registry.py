"""What the screens of processes show in addition to frames: the origin of each process, and its recent values."""

from __future__ import annotations

from array import array
from functools import partial
from math import isnan, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.device_use import is_idle, is_unattributed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.core.inbox import Bell
    from gpumon.core.model import Device, Frame, Process
    from gpumon.operations.device_holders import Holders
    from gpumon.operations.process_details import ProcessOrigin
    from gpumon.session.background import RunInBackground

POINT_SECONDS: Final = 4.0
"""Time between two points of a history."""
MAX_POINTS: Final = 150
SEARCH_SECONDS: Final = 12.0
"""Time between two searches of /proc for processes that could hold unattributed memory."""
_BATCH: Final = 256
"""Origins that are read before the screen is drawn again."""
_FORGET_POINTS: Final = 2

Identity = tuple[int, int]
"""PID and start time in clock ticks since boot; the latter is 0 if the process is not identified."""
HistoryKey = tuple[int, int, str]
"""Identity of a process, and the `Device.key` of a device that it uses."""


class ProcessSeries(NamedTuple):
    """Recent values of a process on a device, oldest first; None where a value was not measured.

    Attributes:
        memory_bytes: Device memory.
        sm_percent: Share of time with kernels on the device.
        cpu_percent: CPU utilization; 100 is one core.
        host_memory_bytes: Resident host memory.
    """

    memory_bytes: Sequence[float | None]
    sm_percent: Sequence[float | None]
    cpu_percent: Sequence[float | None]
    host_memory_bytes: Sequence[float | None]


class ProcessHistory:
    """The recent values of one process on one device, a point every `POINT_SECONDS`."""

    __slots__ = ("_count", "_values", "idle_since", "last_point")

    def __init__(self) -> None:
        self._values = [array("f") for _ in ProcessSeries._fields]  # of thousands of processes, few live long
        self._count = 0
        self.last_point = -1
        self.idle_since: float | None = None
        """Monotonic seconds since when the process runs no kernels, as far as gpumon has seen; None while it does."""

    def add(self, point: int, seconds: float, device: Device, process: Process) -> None:
        """Add the values of a frame as the point with a number; numbers that were skipped are gaps."""
        skipped = min(point - self.last_point - 1, MAX_POINTS) if self._count else 0
        for _ in range(skipped):
            self._append((None, None, None, None))
        self.last_point = point
        self._append((process.memory_bytes, process.sm_percent, process.cpu_percent, process.host_memory_bytes))
        runs_kernels = _runs_kernels(device, process)
        if runs_kernels is not False:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = seconds

    @property
    def first_seconds(self) -> float:
        """When the oldest point was measured, in monotonic seconds."""
        return (self.last_point - min(self._count, MAX_POINTS) + 1) * POINT_SECONDS

    @property
    def series(self) -> ProcessSeries:
        """All points."""
        return ProcessSeries(*map(self._in_order, self._values))

    def _append(self, values: Sequence[float | None]) -> None:
        position = self._count % MAX_POINTS
        for stored, value in zip(self._values, values, strict=True):
            number = nan if value is None else value
            if position < len(stored):
                stored[position] = number
            else:
                stored.append(number)
        self._count += 1

    def _in_order(self, stored: array[float]) -> list[float | None]:
        first = self._count - min(self._count, MAX_POINTS)
        values = (stored[number % MAX_POINTS] for number in range(first, self._count))
        return [None if isnan(value) else value for value in values]


def _runs_kernels(device: Device, process: Process) -> bool | None:
    """Whether a process runs kernels on a device; None if that is unknown. On an idle device none does."""
    if process.sm_percent is not None:
        return process.sm_percent > 0
    return False if is_idle(device) else None


class ProcessesState(NamedTuple):
    """What is known about processes in addition to the frame.

    Attributes:
        origins: What started each process, by identity; those that were not read yet are missing.
        histories: Recent values by process and device; not copies.
        holders: Who could hold the unattributed memory of a device, by `Device.key`.
    """

    origins: Mapping[Identity, ProcessOrigin] = MappingProxyType({})
    histories: Mapping[HistoryKey, ProcessHistory] = MappingProxyType({})
    holders: Mapping[str, Holders] = MappingProxyType({})


class ProcessRegistry:
    """The processes of one stream of frames.

    Args:
        in_background: Runs what may block.
        bell: Rung when origins have been read.
    """

    def __init__(self, in_background: RunInBackground, bell: Bell) -> None:
        self._in_background = in_background
        self._bell = bell
        self._origins: dict[Identity, ProcessOrigin] = {}
        self._histories: dict[HistoryKey, ProcessHistory] = {}
        self._is_reading = False
        self._holders: Mapping[str, Holders] = {}
        self._is_searching = False
        self._search_at = 0.0
        self._is_shown = False
        self._last_point = -1
        self._frame: Frame | None = None

    @property
    def state(self) -> ProcessesState:
        """The state to draw."""
        return ProcessesState(self._origins, self._histories, self._holders)

    def observe(self, frame: Frame) -> None:
        """Add a frame of this host."""
        self._frame = frame
        point = int(frame.monotonic_seconds // POINT_SECONDS)
        if point != self._last_point:
            self._last_point = point
            self._add_point(frame, point)
        if self._is_shown:
            self._read_origins()
            self._search_holders(frame)

    def set_shown(self, is_shown: bool) -> None:
        """Read the origins of new processes from now on, or no longer."""
        has_opened = is_shown and not self._is_shown
        self._is_shown = is_shown
        if has_opened:
            self._read_origins()

    def _add_point(self, frame: Frame, point: int) -> None:
        for device, process in _listed(frame):
            key = (*identity_of(process), device.key)
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = ProcessHistory()
            history.add(point, frame.monotonic_seconds, device, process)
        for key in [key for key, history in self._histories.items() if point - history.last_point > _FORGET_POINTS]:
            del self._histories[key]

    def _read_origins(self) -> None:
        """Read the origins of the processes that are new, in a thread, unless a thread does that already."""
        if self._frame is None or self._is_reading:
            return
        current = {identity_of(process): process.command or "" for _, process in _listed(self._frame)}
        for identity in self._origins.keys() - current.keys():
            del self._origins[identity]
        new = [(*identity, command) for identity, command in current.items() if identity not in self._origins]
        wanted = [item for item in new if item[1]][:_BATCH]
        if wanted:
            self._is_reading = True
            self._in_background(
                partial(_read_all, wanted), partial(self._finish_reading, has_more=len(wanted) == _BATCH)
            )

    def _search_holders(self, frame: Frame) -> None:
        """Search, from time to time, for processes that could hold memory without an owner."""
        devices = [device for device in frame.devices if is_unattributed(device)]
        if not devices:
            self._holders = {}
        elif not self._is_searching and frame.monotonic_seconds >= self._search_at:
            from gpumon.operations.device_holders import device_holders  # late: the first values must not wait for it

            self._is_searching, self._search_at = True, frame.monotonic_seconds + SEARCH_SECONDS
            bus_ids = {device.key: device.pci_bus_id for device in devices}
            listed = {device.key: {process.pid for process in device.processes or ()} for device in devices}
            self._in_background(partial(device_holders, bus_ids, listed), self._finish_search)

    def _finish_search(self, holders: Mapping[str, Holders]) -> None:
        self._is_searching = False
        self._holders = holders
        self._bell()

    def _finish_reading(self, origins: Mapping[Identity, ProcessOrigin], *, has_more: bool) -> None:
        self._is_reading = False
        self._origins = {**self._origins, **origins}
        if has_more and self._is_shown:
            self._read_origins()
        self._bell()


def identity_of(process: Process) -> Identity:
    """What identifies a process over time."""
    return process.pid, process.start_ticks or 0


def _listed(frame: Frame) -> Iterator[tuple[Device, Process]]:
    """Every process with each device that it uses."""
    for device in frame.devices:
        for process in device.processes or ():
            yield device, process


def _read_all(wanted: Sequence[tuple[int, int, str]]) -> dict[Identity, ProcessOrigin]:
    from gpumon.operations.process_details import read_origin  # late, as above

    return {(pid, start_ticks): read_origin(pid, start_ticks, command) for pid, start_ticks, command in wanted}
