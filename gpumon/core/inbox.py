"""What has arrived from another thread and was not looked at yet.

The producing thread puts things in and rings a bell; the reader drains the inbox when it gets to it. A reader that
stalls loses nothing until the inbox is full, and then the oldest.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

INBOX_SIZE: Final = 1024

ItemT = TypeVar("ItemT")
Bell = Callable[[], None]


class Inbox(Generic[ItemT]):
    """Bounded, and safe between threads.

    Args:
        size: As many items are kept.
    """

    def __init__(self, size: int = INBOX_SIZE) -> None:
        self._items: deque[ItemT] = deque(maxlen=size)
        self._ring: Bell = lambda: None
        self.arrived = threading.Event()
        self.lost = 0

    def on_arrival(self, ring: Bell) -> None:
        """Sets the bell, which is called from the producing thread, and rings it for what is waiting."""
        self._ring = ring
        if self._items:
            ring()

    def put(self, item: ItemT) -> None:
        """Adds an item and rings."""
        if len(self._items) == self._items.maxlen:
            self.lost += 1
        self._items.append(item)
        self.ring()

    def ring(self) -> None:
        """Rings without an item: something else about the source has changed."""
        self.arrived.set()
        self._ring()

    def drain(self) -> list[ItemT]:
        """Takes everything that is waiting, oldest first."""
        self.arrived.clear()
        taken: list[ItemT] = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
