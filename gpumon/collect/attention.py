"""Whom somebody looks at, and how often that may cost the driver's time."""

from collections.abc import Callable
from typing import Final

from gpumon.collect.readers import Lane

PERIOD_SECONDS: Final = Lane.PROCESSES.value
"""A device is looked at once a second, a tick's delay allowed for; GPM needs 0.1 s between two samples."""

DRIVER_SHARE: Final = 0.01
"""Looks may take this share of the time, all devices together."""


class Attention:
    """Which devices are looked at, and whose turn it is.

    Looks are paid for with `DRIVER_SHARE` of the time, and one period may be spent before it has passed, so that a few
    short looks have their turns in one sweep. A turn is that device's which has waited longest.

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
        if now + PERIOD_SECONDS <= self._free_at or now - last < PERIOD_SECONDS:
            return False
        rivals = self._asked | self._asked_before
        return all(last <= self._last.get(rival, -PERIOD_SECONDS) for rival in rivals)

    def spent(self, index: int, now: float, seconds: float) -> None:
        """Notes that a look took so many ``seconds`` of the tick at ``now``."""
        self._last[index] = now
        self._free_at = max(self._free_at, now) + seconds / DRIVER_SHARE

    def leave(self, index: int) -> None:
        """Notes that a device is not looked at any more, so that its next look need not wait for a second."""
        self._asked.discard(index)
        self._asked_before.discard(index)
        self._last.pop(index, None)
