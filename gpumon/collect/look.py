"""What is seen of a device that somebody looks at."""

from collections.abc import Mapping
from typing import Final

from gpumon.collect.activity import GPM_METRICS, EnergyCounter, GpmCounters, Part, ProcessShares
from gpumon.collect.attention import Attention
from gpumon.collect.fields import Value
from gpumon.collect.glance import METRIC as GLANCED_METRIC
from gpumon.collect.glance import Glance
from gpumon.collect.lanes import retry_after, untrue
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.readers import Lane
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

_HELD_SECONDS: Final = 30.0
"""What was seen is shown no longer than this."""

NOT_LOOKED: Final = Problem(ProblemCode.NOT_READ, "It is read only while its GPU is looked at.")
_ITS_TURN: Final = Problem(ProblemCode.NOT_READ, "It is read in a moment: GPUs that are looked at take turns.")

LOOK_METRICS: Final = (*GPM_METRICS, *EnergyCounter.metrics)
"""What is read only in a look, but for what a glance tells of a busy device."""

_UNSEEN: Final[dict[str, Problem]] = dict.fromkeys(LOOK_METRICS, NOT_LOOKED)

Shares = Mapping[int, Value] | Problem
"""Percent of the multiprocessors by PID, or why that is not known."""


class CloseLook:
    """What is seen of one device while somebody looks at it.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        index: NVML's index of the device.
        attention: Tells whether it is looked at.
    """

    def __init__(self, api: Nvml, handle: Handle, index: int, attention: Attention) -> None:
        self._index = index
        self._attention = attention
        self._glance = Glance(api, handle, index, attention)
        self._processes = ProcessShares(api, handle)
        self._parts: tuple[Part, ...] = (GpmCounters(api, handle), EnergyCounter(api, handle), self._processes)
        self._due = [0.0] * len(self._parts)
        self._is_open = False
        self._seen_at = 0.0
        self._readings: dict[str, float] = {}
        self._problems: Mapping[str, Problem] = _UNSEEN

    def read(self, key: str, now: float, readings: dict[str, float], problems: dict[str, Problem]) -> Shares:
        """Adds to a device's readings and problems what is seen of it, looking anew when it has its turn.

        Args:
            key: The device's.
            now: Monotonic seconds.
            readings: Those of the tick.
            problems: Those of the tick.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        keys = self._attention.keys
        if not keys or (key not in keys and f"index:{self._index}" not in keys):
            if self._is_open:
                self.close()
            problems |= _UNSEEN
            _put({GLANCED_METRIC: self._glance.read(now, readings)}, readings, problems)
            return NOT_LOOKED
        self._glance.close()
        if self._attention.has_turn(self._index, now):
            self._is_open = True
            self._look(now)
        elif now - self._seen_at > _HELD_SECONDS or not self._is_open:
            problems.update(dict.fromkeys(LOOK_METRICS, _ITS_TURN))
            return _ITS_TURN
        readings.update(self._readings)
        problems.update(self._problems)
        return self._processes.shares

    def close(self) -> None:
        """Gives back what the driver's library holds for it; the device may be looked at again later."""
        self._is_open = False
        self._glance.close()
        self._attention.leave(self._index)
        for part in self._parts:
            part.close()

    def _look(self, now: float) -> None:
        began = self._attention.clock()
        readings: dict[str, float] = {}
        problems = dict(self._problems)  # those of a part that is not due stay
        for place, part in enumerate(self._parts):
            if now < self._due[place]:
                continue
            try:
                values = part.read()
            except ReadingError as failed:
                values = dict.fromkeys(part.metrics, failed.problem)
                self._due[place] = now + retry_after(failed.problem, Lane.FAST)
            _put(values, readings, problems)
        self._readings, self._problems, self._seen_at = readings, problems, now
        self._attention.spent(self._index, now, self._attention.clock() - began)


def _put(values: Mapping[str, Value], readings: dict[str, float], problems: dict[str, Problem]) -> None:
    """Sorts values into readings and problems."""
    for metric, value in values.items():
        problems.pop(metric, None)
        if isinstance(value, Problem):
            problems[metric] = value
        elif METRICS[metric].admits(value):
            readings[metric] = value
        else:
            problems[metric] = untrue(value)
