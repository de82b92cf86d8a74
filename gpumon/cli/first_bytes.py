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
_MAX_EVENTS: Final = 64
_MAX_PEEKED: Final = 16 << 10
_HEADERS_END: Final = re.compile(rb"\n\r?\n")


class FirstBytes:
    """What a socket accepts, until the first message is there: all headers of HTTP, or a record of TLS.

    Args:
        listener: The socket.
        most: How many may be silent.

    Attributes:
        events: Readable when `next` has something to do.
    """

    def __init__(self, listener: socket.socket, most: int) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._most = most
        self.events = select.epoll()
        self.events.register(listener, select.EPOLLIN)
        self._silent: dict[int, tuple[socket.socket, Any, float]] = {}

    def next(self) -> tuple[socket.socket, Any]:
        """A connection whose client has sent its first message or its end, and its address.

        Raises:
            OSError: There is none now, or no descriptor for a new one.
        """
        for _ in range(_MAX_EVENTS):
            if not (events := self.events.poll(0, 1)):
                break
            ((descriptor, _),) = events
            if descriptor == self._listener.fileno():
                self._accept()
            elif _is_message(self._silent[descriptor][0]):
                connection, address, _ = self._silent.pop(descriptor)
                self.events.unregister(connection)
                return connection, address
        raise BlockingIOError

    def end(self, seconds: float = 0.0) -> None:
        """End the connections that were accepted longer ago."""
        until = time.monotonic() - seconds
        while self._silent and next(iter(self._silent.values()))[2] <= until:
            self._silent.pop(next(iter(self._silent)))[0].close()

    def _accept(self) -> None:
        """Accept some connections; of too many, end the oldest ones of the address that has the most."""
        with suppress(BlockingIOError):
            for _ in range(max(1, self._most // 8)):
                connection, address = self._listener.accept()
                self._silent[connection.fileno()] = connection, address, time.monotonic()
                self.events.register(connection, select.EPOLLIN | select.EPOLLET)  # once for all that has arrived
        while (surplus := len(self._silent) - self._most) > self._most // 8:  # not for each alone
            hosts = {descriptor: address[0] for descriptor, (_, address, _) in self._silent.items()}
            busiest = Counter(hosts.values()).most_common(1)[0][0]
            for descriptor in [key for key, host in hosts.items() if host == busiest][:surplus]:
                self._silent.pop(descriptor)[0].close()


def _is_message(connection: socket.socket) -> bool:
    """Whether a first message has arrived completely, or nothing more will."""
    try:
        data = connection.recv(_MAX_PEEKED, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    if data[:1] == b"\x16":  # TLS: type, version, and the length of the record
        return len(data) >= min(5 + int.from_bytes(data[3:5], "big"), _MAX_PEEKED)
    return not data or len(data) == _MAX_PEEKED or _HEADERS_END.search(data) is not None
