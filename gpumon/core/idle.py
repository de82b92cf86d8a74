"""Since when a device is idle."""

from typing import Final, NamedTuple

from gpumon.core.metrics import NO_WORK_PERCENT
from gpumon.core.model import Device

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


def is_idle(device: Device) -> bool | None:
    """Whether nothing ran on a device at a fresh sample: neither kernels nor copies; None if that is unknown."""
    utilization = device.get(_UTILIZATION)
    if utilization is None or device.is_stale(_UTILIZATION):
        return None
    return utilization == 0 and (device.get(_SM_ACTIVITY) or 0.0) < NO_WORK_PERCENT
