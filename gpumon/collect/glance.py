"""A glance at a busy device that nobody looks at: whether anything computes on it.

Utilization counts copies as work, and a device that only copies shows 100 %. The chip's counters tell the difference.
One of them is read every ten seconds, which costs half a millisecond.
"""

from collections.abc import Mapping
from typing import Final

from gpumon.collect.activity import SM_COUNTER, TWO_READINGS, GpmCounters
from gpumon.collect.attention import PERIOD_SECONDS, Attention
from gpumon.collect.fields import Value
from gpumon.collect.lanes import retry_after
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.readers import Lane
from gpumon.core.metrics_activity import BUSY_PERCENT
from gpumon.core.problems import Problem, ProblemCode

METRIC: Final = SM_COUNTER[1]
NOT_BUSY: Final = Problem(
    ProblemCode.NOT_READ,
    f"It is read only while its GPU is looked at, or has a utilization of {BUSY_PERCENT:.0f} % and more.",
)
_IN_A_MOMENT: Final = Problem(ProblemCode.NOT_READ, "It is read in a moment: GPUs take turns.")


class Glance:
    """Tells whether anything computes on one device, while that is busy.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        index: NVML's index of the device.
        attention: Gives the turns.
    """

    def __init__(self, api: Nvml, handle: Handle, index: int, attention: Attention) -> None:
        self._index = index
        self._attention = attention
        self._counters = GpmCounters(api, handle, (SM_COUNTER,))
        self._due = self._began = 0.0
        self._value: Value = _IN_A_MOMENT
        self._is_open = False

    def read(self, now: float, readings: Mapping[str, float]) -> Value:
        """SM activity since the last glance, or why it is not known.

        Args:
            now: Monotonic seconds.
            readings: The device's readings at this moment.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if readings.get("utilization_gpu_percent", 0.0) < BUSY_PERCENT:
            self.close()
            return NOT_BUSY
        if now >= self._due and self._attention.has_turn(self._index, now):
            if not self._is_open:
                self._is_open = True
                self._began = now
            self._value = self._glance(now)
        return self._value

    def close(self) -> None:
        """Gives back what the driver's library holds for it. A device that wavers is not glanced at more often."""
        if self._is_open:
            self._is_open = False
            self._due = max(self._due, self._began + Lane.MEDIUM.value)
            if not isinstance(self._value, Problem):
                self._value = _IN_A_MOMENT
            self._attention.leave(self._index)
            self._counters.close()

    def _glance(self, now: float) -> Value:
        """Reads the counter. It is a difference, so the second reading follows the first soon."""
        began = self._attention.clock()
        pause = Lane.MEDIUM.value
        try:
            value = self._counters.read()[METRIC]
        except ReadingError as failed:
            value = failed.problem
            pause = retry_after(failed.problem, Lane.MEDIUM)
        if value is TWO_READINGS:
            pause = PERIOD_SECONDS
        self._due = now + pause
        self._attention.spent(self._index, now, self._attention.clock() - began)
        return value
