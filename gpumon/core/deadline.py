"""A deadline for everything that is exchanged over a socket: the timeout of a socket is that of each single call."""

import io
import math
import socket
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any


class Deadline:
    """The moment at which an exchange ends, however steadily bytes arrive.

    Args:
        seconds: From now on.
        silence_seconds: Longest time of one call, such as to connect to one address or to wait for bytes.

    Attributes:
        seconds: As given.
    """

    def __init__(self, seconds: float, silence_seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._silence_seconds = silence_seconds
        self._end = time.monotonic() + seconds

    @property
    def has_passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end

    def call_seconds(self) -> float:
        """How long the next call may take.

        Raises:
            TimeoutError: The deadline has passed.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, self._silence_seconds)

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """Connect to the first address of a host that accepts.

        Args:
            address: Name or numeric address, and port.

        Raises:
            OSError: None accepts, there is no such name, or the time is over.
        """
        failure: OSError = OSError("the name has no address")
        for family, kind, protocol, _, target in self._look_up(address):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(self.call_seconds())
                connection.connect(target)
                connection.settimeout(self.call_seconds())
            except OSError as error:
                failure = error
                connection.close()
            else:
                return connection
        raise failure

    def reader(self, connection: socket.socket) -> io.BufferedReader:
        """What a connection sends; reading raises `TimeoutError` when the time is over."""
        return io.BufferedReader(_TimedReader(connection, self))

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Send bytes.

        Raises:
            OSError: The connection is closed, or the time is over.
        """
        connection.settimeout(self.call_seconds())
        connection.sendall(data)

    def _look_up(self, address: tuple[str, int]) -> Any:  # noqa: ANN401 - the type of socket.getaddrinfo
        """The addresses of a name. The C library waits for name servers, without a limit that a caller can set."""
        addresses: SimpleQueue[Any] = SimpleQueue()

        def look_up() -> None:
            try:
                addresses.put(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                addresses.put(error)

        threading.Thread(target=look_up, name="gpumon-look-up", daemon=True).start()
        try:
            result = addresses.get(timeout=min(self.call_seconds(), threading.TIMEOUT_MAX))
        except Empty:
            raise TimeoutError from None
        if isinstance(result, Exception):
            raise result
        return result


class _TimedReader(io.RawIOBase):
    """Reads from a connection until a deadline.

    Args:
        connection: It stays open until this is closed.
        deadline: When the time is over.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - the type of io.RawIOBase
        """Read what there is, or wait for it."""
        self._connection.settimeout(self._deadline.call_seconds())
        return self._file.readinto(buffer)

    def close(self) -> None:
        """Close, and the connection with it if nothing else uses it."""
        self._file.close()
        super().close()
