"""Whether a device is free, idle or busy, who uses it, and since when it is idle: the one answer of every command."""

from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Process

BUSY_PERCENT: Final = 90.0
"""GPU utilization of a busy device: SM activity is sampled now and then, to see whether kernels run at all."""
LOADED_PERCENT: Final = 50.0
"""GPU utilization from which the clocks of a device show what it can do."""
IDLE_PERCENT: Final = 1.0
"""Below this utilization a device is idle; NVML reports whole numbers."""
NO_WORK_PERCENT: Final = 1.0
"""Below this SM activity no kernel runs: copies alone raise the GPU utilization."""
HELD_BYTES: Final = 1 << 30
"""An idle device with this much memory in use is held by a program: drivers and monitors use some hundred MiB."""
UNATTRIBUTED_BYTES: Final = 64 << 20
"""Less unattributed memory than this is bookkeeping that the driver keeps for each process."""
UNATTRIBUTED_PERCENT: Final = 1.0
"""A process that exits leaves a smaller share of the memory unattributed for a moment."""
FREE_SAMPLES: Final = 3
"""A device is free when this many samples in succession show it empty, or all samples that there are."""
_DESKTOP_PERCENT: Final = 10.0
"""Utilization below which a device with graphics processes only draws a desktop."""
_UTILIZATION: Final = "utilization_gpu_percent"
_SM_ACTIVITY: Final = "sm_activity_percent"


class IdleSince(NamedTuple):
    """The beginning of the time in which a device is idle.

    Attributes:
        seconds: Monotonic seconds of the first idle sample; the idle time of a frame is its moment minus this.
        is_at_least: Whether the device may have been idle before, because nothing is known about the time before.
    """

    seconds: float
    is_at_least: bool


class IdleTime:
    """Observes the samples of one device.

    A sample that is missing is not idle: idle time ends in a gap, and begins again after it, unless the gap is as short
    as a late sample.
    """

    __slots__ = ("_is_known", "_last_known", "_since")

    def __init__(self) -> None:
        self._since: IdleSince | None = None
        self._last_known: float | None = None
        self._is_known = False

    @property
    def since(self) -> IdleSince | None:
        """Since when the device is idle; None if it is not idle at the latest sample, or if that is unknown."""
        return self._since if self._is_known else None

    def add(self, seconds: float, is_idle: bool | None, patience_seconds: float) -> None:
        """Add a sample.

        Args:
            seconds: The moment.
            is_idle: Whether the device was idle; None if unknown.
            patience_seconds: Longest time between two samples that belong together.
        """
        self._is_known = is_idle is not None
        if is_idle is None:
            return
        before, self._last_known = self._last_known, seconds
        continues = before is not None and 0 <= seconds - before <= patience_seconds
        if not is_idle:
            self._since = None
        elif self._since is None or not continues:
            self._since = IdleSince(seconds, not continues)


def computing_processes(device: Device) -> list[Process]:
    """The processes that compute on a device; the graphics of a desktop do not count."""
    return [process for process in device.processes or () if process.computes]


def is_empty(device: Device) -> bool:
    """Whether a sample is that of an empty device; False if that is unknown.

    No process computes on it, and no invisible process uses its memory, its multiprocessors or its copy engines. A
    device that draws a desktop may be utilized a little.
    """
    if device.state is not DeviceState.OK or device.processes is None or computing_processes(device):
        return False
    return not is_unattributed(device) and not is_utilized(device)


def is_utilized(device: Device) -> bool:
    """Whether kernels or copies ran at a sample, more than a desktop needs; False if that is unknown."""
    limit = _DESKTOP_PERCENT if device.processes else IDLE_PERCENT
    return max(device.get(_UTILIZATION) or 0.0, device.get(_SM_ACTIVITY) or 0.0) >= limit


class FreeCheck:
    """Whether a device is free: all of its last samples, at most `FREE_SAMPLES`, are those of an empty device.

    It is the only answer to the question, on the screen and in commands.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0

    @property
    def is_free(self) -> bool:
        """Whether the device is free at its latest sample."""
        return not self._left

    def add(self, device: Device) -> bool:
        """Add a sample; returns whether the device is free now."""
        self._left = max(0, self._left - 1) if is_empty(device) else FREE_SAMPLES
        return self.is_free


def is_unattributed(device: Device) -> bool:
    """Whether a device has unattributed memory in use, beyond bookkeeping."""
    return (device.get("memory_unattributed_bytes") or 0) >= UNATTRIBUTED_BYTES


def is_much_unattributed(device: Device, percent: float = UNATTRIBUTED_PERCENT) -> bool:
    """Whether the unattributed memory is more than an exiting process leaves for a moment.

    Args:
        device: The device.
        percent: The share of its memory that is much.
    """
    held = device.get("memory_unattributed_bytes") or 0
    return is_unattributed(device) and held >= percent / 100 * (device.get("memory_total_bytes") or 0)


def is_busy(device: Device, percent: float = BUSY_PERCENT) -> bool:
    """Whether the utilization of a device is at least a percentage; False if it is unknown."""
    utilization = device.get(_UTILIZATION)
    return utilization is not None and utilization >= percent


def is_idle(device: Device) -> bool | None:
    """Whether nothing ran on a device at a fresh sample: neither kernels nor copies; None if that is unknown."""
    utilization = device.get(_UTILIZATION)
    if utilization is None or device.is_stale(_UTILIZATION):
        return None
    return utilization < IDLE_PERCENT and (device.get(_SM_ACTIVITY) or 0.0) < NO_WORK_PERCENT
