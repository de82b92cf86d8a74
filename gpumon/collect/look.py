"""Who is looked at, how often that may cost the driver's time, and what was seen."""

from collections.abc import Callable, Mapping
from typing import Final

from gpumon.collect.activity import EnergyCounter, GpmCounters, Part, ProcessShares
from gpumon.collect.fields import Value
from gpumon.collect.lanes import retry_after, untrue
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.readers import Lane
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

PERIOD_SECONDS: Final = Lane.PROCESSES.value
"""A device is looked at once a second, a tick's delay allowed for; GPM needs 0.1 s between two samples."""

DRIVER_SHARE: Final = 0.01
"""Looks may take this share of the time, all devices together."""

_HELD_SECONDS: Final = 30.0
"""What was seen is shown no longer than this."""

NOT_LOOKED: Final = Problem(ProblemCode.NOT_READ, "It is read only while its GPU is looked at.")
_ITS_TURN: Final = Problem(ProblemCode.NOT_READ, "It is read in a moment: GPUs that are looked at take turns.")

LOOK_METRICS: Final = (*GpmCounters.metrics, *EnergyCounter.metrics)
"""What is read only in a look."""

_UNSEEN: Final[dict[str, Problem]] = dict.fromkeys(LOOK_METRICS, NOT_LOOKED)

Shares = Mapping[int, Value] | Problem
"""Percent of the multiprocessors by PID, or why that is not known."""


class Attention:
    """Which devices are looked at, and whose turn it is.

    After a look, nobody has a turn until it was `DRIVER_SHARE` of the time. Then it is the device's that has waited
    longest.

    Args:
        clock: Monotonic seconds.

    Attributes:
        keys: UUIDs of the devices that somebody looks at, or ``index:N`` of one that has told none.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.keys: frozenset[str] = frozenset()
        self._free_at = 0.0
        self._last: dict[int, float] = {}
        self._asked: set[int] = set()
        self._asked_before: set[int] = set()

    def begin_sweep(self) -> None:
        """Begins to note which devices ask for a turn; one that stops asking is waited for no more."""
        self._asked_before, self._asked = self._asked, set()

    def has_turn(self, index: int, now: float) -> bool:
        """Whether the device may be looked at now."""
        self._asked.add(index)
        last = self._last.get(index, -PERIOD_SECONDS)
        if now < self._free_at or now - last < PERIOD_SECONDS:
            return False
        rivals = self._asked | self._asked_before
        return all(last <= self._last.get(rival, -PERIOD_SECONDS) for rival in rivals)

    def spent(self, index: int, now: float, seconds: float) -> None:
        """Notes that a look took so many ``seconds`` of the tick at ``now``."""
        self._last[index] = now
        self._free_at = now + seconds / DRIVER_SHARE

    def leave(self, index: int) -> None:
        """Notes that a device is not looked at any more, so that its next look need not wait for a second."""
        self._asked.discard(index)
        self._asked_before.discard(index)
        self._last.pop(index, None)


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
            return NOT_LOOKED
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
            for metric, value in values.items():
                problems.pop(metric, None)
                if isinstance(value, Problem):
                    problems[metric] = value
                elif METRICS[metric].admits(value):
                    readings[metric] = value
                else:
                    problems[metric] = untrue(value)
        self._readings, self._problems, self._seen_at = readings, problems, now
        self._attention.spent(self._index, now, self._attention.clock() - began)
