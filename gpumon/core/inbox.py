"""A bounded queue between a producing thread and a reader.

The producing thread puts items in and rings a bell; the reader drains the inbox when it is ready. A reader that stalls
loses nothing until the inbox is full, and then the oldest items.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

INBOX_SIZE: Final = 1024

ItemT = TypeVar("ItemT")
Bell = Callable[[], None]


class Inbox(Generic[ItemT]):
    """A bounded, thread-safe queue with a bell.

    Args:
        size: Maximum number of items.

    Attributes:
        arrived: Set while something has arrived since the last `drain`.
        lost: Number of items dropped because the inbox was full.
        has_bell: Whether a bell was set with `on_arrival`.
    """

    def __init__(self, size: int = INBOX_SIZE) -> None:
        self._items: deque[ItemT] = deque(maxlen=size)
        self._ring: Bell = lambda: None
        self.arrived = threading.Event()
        self.lost = 0
        self.has_bell = False

    def on_arrival(self, ring: Bell) -> None:
        """Set the bell, which is called from the producing thread; ring it now if items are waiting."""
        self._ring = ring
        self.has_bell = True
        if self._items:
            ring()

    def put(self, *items: ItemT) -> None:
        """Add items and ring once."""
        self.lost += max(0, len(self._items) + len(items) - (self._items.maxlen or 0))
        self._items.extend(items)
        self.ring()

    def ring(self) -> None:
        """Ring without an item, because something else about the source changed."""
        self.arrived.set()
        self._ring()

    def drain(self) -> list[ItemT]:
        """Remove and return all waiting items, oldest first."""
        self.arrived.clear()
        items: list[ItemT] = []
        while self._items:
            items.append(self._items.popleft())
        return items
