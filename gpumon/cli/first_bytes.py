"""Connections whose client has not sent its first message: they cost a descriptor, and neither a thread nor TLS."""

import re
import select
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final

MAX_SILENT: Final = 256
"""At most a quarter of the descriptors that the process may open."""
_PEEKED_BYTES: Final = 16 << 10
_TLS_HEADER_BYTES: Final = 5
_HEADER_END: Final = re.compile(rb"\n\r?\n")

Accepted = tuple[socket.socket, Any]


class FirstBytes:
    """What a socket accepts, until the first message is there: all headers of HTTP, or a record of TLS.

    Args:
        listener: The socket.
        most: How many may be silent.
    """

    def __init__(self, listener: socket.socket, most: int) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._most = most
        self._events = select.epoll()
        self._events.register(listener, select.EPOLLIN)
        self._silent: dict[int, tuple[socket.socket, Any, float]] = {}

    def fileno(self) -> int:
        """A descriptor that is readable when `next` has something to do."""
        return self._events.fileno()

    def next(self) -> Accepted:
        """A connection whose client has sent its first message or its end, and its address.

        Raises:
            OSError: There is none now, or no descriptor for a new one.
        """
        for descriptor, _ in self._events.poll(0, 1):
            if descriptor == self._listener.fileno():
                self._accept()
            elif _is_message(self._silent[descriptor][0]):
                connection, address, _ = self._silent.pop(descriptor)
                self._events.unregister(connection)
                return connection, address
        raise BlockingIOError

    def end(self, seconds: float = 0.0) -> None:
        """End the connections that were accepted longer ago."""
        until = time.monotonic() - seconds
        for descriptor in [key for key, (*_, accepted) in self._silent.items() if accepted <= until]:
            self._silent.pop(descriptor)[0].close()

    def _accept(self) -> None:
        """Accept some connections, and end as many if there are too many: of the address with the most, the oldest."""
        with suppress(BlockingIOError):
            for _ in range(max(1, self._most // 8)):
                connection, address = self._listener.accept()
                self._silent[connection.fileno()] = connection, address, time.monotonic()
                self._events.register(connection, select.EPOLLIN | select.EPOLLET)  # once for all that has arrived
        while len(self._silent) > self._most:
            hosts = {descriptor: address[0] for descriptor, (_, address, _) in self._silent.items()}
            ((busiest, count),) = Counter(hosts.values()).most_common(1)
            surplus = [descriptor for descriptor, host in hosts.items() if host == busiest]
            for descriptor in surplus[: min(len(hosts) - self._most, max(1, count // 2))]:
                self._silent.pop(descriptor)[0].close()


def _is_message(connection: socket.socket) -> bool:
    """Whether a first message has arrived completely, or nothing more will."""
    with suppress(BlockingIOError):
        try:
            data = connection.recv(_PEEKED_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except ConnectionError:
            return True
        is_tls = data[:1] == b"\x16"
        size = _TLS_HEADER_BYTES + int.from_bytes(data[3:5], "big") if is_tls else _PEEKED_BYTES
        return (
            not data or len(data) >= min(size, _PEEKED_BYTES) or (not is_tls and _HEADER_END.search(data) is not None)
        )
    return False
