"""Records when Python collects garbage, without running any bytecode in the collection.

Python writes an exception in a callback of `gc` to stderr and forgets it. A signal that arrives during a collection is
handled by the next bytecode in the main thread: a callback in Python would swallow the KeyboardInterrupt of Ctrl+C.
Therefore the callback consists of functions in C only.
"""

from __future__ import annotations

import gc
import time
from _thread import get_ident
from collections import deque
from functools import partial
from itertools import repeat
from operator import methodcaller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_EVENTS = 1024


class CollectionsLog:
    """The starts and ends of garbage collections, from `start` to `stop`."""

    def __init__(self) -> None:
        self._events: deque[tuple[str, float, int]] = deque(maxlen=_MAX_EVENTS)
        self._started_at = 0.0
        phases = {
            phase: property(methodcaller("record_" + phase), doc="Record the time and the thread.")
            for phase in ("start", "stop")
        }
        records = {"record_" + phase: self._recorder(phase) for phase in phases}
        self._callback: Any = partial(getattr, type("Phases", (), {**phases, **records})())
        """Called with the name of the phase and a dictionary: ``getattr(phases, "start", {...})``."""

    def start(self) -> None:
        """Record the collections of the process."""
        if self._callback not in gc.callbacks:
            gc.callbacks.append(self._callback)

    def stop(self) -> None:
        """Record no more collections."""
        if self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)

    def seconds(self, thread: int) -> float:
        """How long a thread has collected garbage since the last call, in seconds; called by one thread at a time.

        Args:
            thread: Its identifier.
        """
        total = 0.0
        while self._events:
            phase, now, collector = self._events.popleft()
            if phase == "start":
                self._started_at = now
            elif collector == thread and self._started_at:
                total += now - self._started_at
                self._started_at = 0.0
        return total

    def _recorder(self, phase: str) -> Any:
        """A function in C, without arguments, that appends the phase, the time and the thread to the events."""
        now = zip(repeat(phase), iter(time.monotonic, None), iter(get_ident, None))
        return map(self._events.append, now).__next__
