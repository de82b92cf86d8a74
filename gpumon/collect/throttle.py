"""Why the clocks of a device are lowered at this moment."""

from typing import Final

from gpumon.collect import nvml
from gpumon.collect.lanes import retry_after
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.readers import Lane
from gpumon.core.problems import Problem

_CALLS: Final = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class ThrottleReasons:
    """The reasons of one device, read at every tick; a device that does not tell them is not asked at every tick.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
    """

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._problem: Problem | None = None
        self._again_at = 0.0

    def read(self, now: float) -> tuple[str, ...] | Problem:
        """The reasons in force at ``now`` (monotonic seconds), or why they are not known.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._problem is not None and now < self._again_at:
            return self._problem
        try:
            bits = self._api.call_newest(*_CALLS, self._handle)
        except ReadingError as failed:
            self._problem = failed.problem
            self._again_at = now + retry_after(failed.problem, Lane.FAST)
            return failed.problem
        self._problem = None
        return tuple(name for bit, name in nvml.THROTTLE_REASONS if bits & bit)
