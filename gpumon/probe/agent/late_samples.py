"""Corrects the samples that came too late to show where the main thread was.

To sample the main thread, the probe's thread needs the GIL. While the main thread runs Python it gets the GIL after the
switch interval: that sample is forced, and shows a place where the main thread runs Python. If the main thread gives
the GIL away earlier, because it calls an operator, the sample shows that operator, although the thread was in Python
when the sample was due. Up to a switch interval of Python would count for the operator after it, again and again. Such
a late sample counts for the place of the forced sample that is nearest in time.

The number of waits shows why a sample is late. A thread that keeps the GIL makes the probe's thread wait once or twice.
One that gives the GIL away for moments, as a sequence of short operators does, wakes it every time in vain; these
samples are right, because the operators are near each other.
"""

from __future__ import annotations

from bisect import bisect_left

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

    Stack = Tuple[int, ...]

LATE_SECONDS = 0.0003
"""A thread that needs nothing but a core runs earlier than this after the time that it slept for."""
_NEAR_SECONDS = 0.25
"""Places farther away may belong to another part of the program."""
_OTHERS_FACTOR = 2.0
"""Samples are corrected only where they are late for this many times as long as other threads can have kept the GIL."""


class Sample:
    """A stack of the main thread.

    Args:
        seen_at: When it was read, in monotonic seconds.
        delay: How much later that was than it was due, in seconds.
        waits: How often the probe's thread waited for the GIL meanwhile; 0 if something else delayed it.
        count: How many samples it stands for.
        stack: The stack.
    """

    __slots__ = ("count", "delay", "seen_at", "stack", "waits")

    def __init__(self, seen_at: float, delay: float, waits: int, count: int, stack: Stack) -> None:
        self.seen_at = seen_at
        self.delay = delay
        self.waits = waits
        self.count = count
        self.stack = stack

    @property
    def is_late(self) -> bool:
        """Whether one thread kept the GIL since the sample was due, without giving it away for moments."""
        return self.waits > 0 and self.delay >= LATE_SECONDS * max(1, self.waits)


def correct(samples: list[Sample], switch_interval: float, hertz: float, others_seconds: float) -> None:
    """Replace the stacks of late samples by those of forced ones.

    Args:
        samples: All samples with a delay of at least `LATE_SECONDS`, in order.
        switch_interval: The time after which a thread gets the GIL from one that runs Python, in seconds.
        hertz: Samples per second.
        others_seconds: How long other threads than the main thread ran Python at most.
    """
    late = [sample for sample in samples if sample.is_late]
    forced = [sample for sample in late if sample.delay >= switch_interval]
    moved = []
    moments = [sample.seen_at for sample in forced]
    for sample in late:
        if sample.delay < switch_interval:
            due = sample.seen_at - sample.delay
            index = bisect_left(moments, due)
            near = min(forced[max(0, index - 1) : index + 1], key=lambda other: abs(other.seen_at - due), default=None)
            if near is not None and abs(near.seen_at - due) <= _NEAR_SECONDS:
                moved.append((sample, near.stack))
    if sum(sample.count for sample, _ in moved) >= _OTHERS_FACTOR * others_seconds * hertz:
        for sample, stack in moved:
            sample.stack = stack
