"""Why the clocks of a device are lowered at this moment."""

from typing import Final

from gpumon.collect import nvml
from gpumon.collect.lanes import retry_after
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.patience import Patience
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
        self._reasons: tuple[str, ...] | None = None
        self._problem: Problem | None = None
        self._patience = Patience()
        self._again_at = 0.0

    def read(self, now: float) -> tuple[tuple[str, ...] | None, Problem | None]:
        """The reasons in force at ``now`` (monotonic seconds), if they are known; and why they are not, or not new.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._problem is not None and now < self._again_at:
            return self._reasons, self._problem
        try:
            bits = self._api.call_newest(*_CALLS, self._handle)
        except ReadingError as failed:
            excuse = self._patience.excuse(failed.problem)
            if excuse is None:
                self._reasons = None
            self._problem = failed.problem if self._reasons is None else excuse
            self._again_at = now + retry_after(failed.problem, Lane.FAST)
            return self._reasons, self._problem
        self._patience.succeeded()
        self._problem = None
        self._reasons = tuple(name for bit, name in nvml.THROTTLE_REASONS if bits & bit)
        return self._reasons, None
