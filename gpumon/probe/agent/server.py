"""The probe's Unix socket and its clients. No call blocks on a client."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import deque
from contextlib import suppress

from .debug import log_exception
from .folders import make_private_folder, set_mode, socket_folders
from .messages import MAX_REQUEST_BYTES, RequestError, decode_requests
from .owned_socket import OwnedSocket, ProbeEndedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_CLIENTS = 8
_MAX_PENDING_BYTES = 64 << 20
_SEND_TIMEOUT_SECONDS = 30.0
_MAX_PATH_BYTES = 107
"""Of the path of a Unix socket on Linux, without its null byte."""
_ACCEPT_RETRY_SECONDS = 0.25


class ClientConnection:
    """A connected client.

    Args:
        connection: Its socket, in non-blocking mode.

    Attributes:
        interval: Seconds between two messages ``statistics``, or None until the client was greeted.
    """

    def __init__(self, connection: OwnedSocket) -> None:
        self.connection = connection
        self.interval: float | None = None
        self._received = b""
        self._pending: deque[memoryview] = deque()
        self._pending_bytes = 0
        self._latest: bytes | None = None
        self._progress_at = time.monotonic()

    @property
    def wants_to_write(self) -> bool:
        """Whether lines are queued."""
        return bool(self._pending) or self._latest is not None

    def send(self, line: bytes, *, replaceable: bool = False) -> None:
        """Queue a line and send as much as the socket accepts.

        Args:
            line: The line.
            replaceable: Whether a later replaceable line may take its place while it is queued.

        Raises:
            OSError: The client closed the connection, or has not read for too long.
            ProbeEndedError: The program closed the connection.
        """
        if replaceable:
            self._latest = line
        else:
            self._queue(line)
        self.flush()

    def _queue(self, line: bytes) -> None:
        self._pending.append(memoryview(line))
        self._pending_bytes += len(line)

    def flush(self) -> None:
        """Send as many queued bytes as the socket accepts.

        Raises:
            OSError: The client closed the connection, or has not read for too long.
            ProbeEndedError: The program closed the connection.
        """
        while self.wants_to_write:
            if self._latest is not None and not self._pending:
                self._queue(self._latest)
                self._latest = None
            try:
                sent = self.connection.get().send(self._pending[0])
            except BlockingIOError:
                is_stalled = time.monotonic() - self._progress_at > _SEND_TIMEOUT_SECONDS
                if is_stalled or self._pending_bytes > _MAX_PENDING_BYTES:
                    raise OSError("the client does not read") from None
                return
            self._progress_at = time.monotonic()
            self._pending_bytes -= sent
            rest = self._pending.popleft()[sent:]
            if rest:
                self._pending.appendleft(rest)
        self._progress_at = time.monotonic()

    def receive(self) -> list[dict[str, Any]]:
        """The requests that have arrived.

        Raises:
            OSError: The client closed the connection.
            ProbeEndedError: The program closed the connection.
            RequestError: The client sent something that is not a request.
        """
        try:
            data = self.connection.get().recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionError("the client closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > MAX_REQUEST_BYTES:
            raise RequestError("a request is too long")
        return decode_requests(lines)


class SocketServer:
    """The listening socket and the connected clients."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.clients: dict[int, ClientConnection] = {}
        self._listener: OwnedSocket | None = None
        self._inode = 0
        self._pid = os.getpid()

    def open(self) -> None:
        """Listen in the first folder that can be used.

        Raises:
            ProbeEndedError: There is none.
        """
        for folder in socket_folders():
            try:
                name = f"{os.getpid()}-{os.urandom(4).hex()}.sock"
                path = os.path.join(folder, name)
                if len(os.fsencode(path)) <= _MAX_PATH_BYTES and make_private_folder(folder):
                    self._listen(path)
                    return
            except OSError:
                log_exception()
        raise ProbeEndedError("no folder can hold the socket")

    def _listen(self, path: str) -> None:
        """Listen under a temporary name and rename the socket, so that a client can connect as soon as it is found."""
        temporary = path[: -len(".sock")] + ".part"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.bind(temporary)
            set_mode(temporary, 0o600)
            listener.listen(_MAX_CLIENTS)
            os.rename(temporary, path)
        except OSError:
            listener.close()  # an unclosed socket causes a ResourceWarning on the program's stderr
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if self._listener is not None:
            self._listener.close()
        self._listener = OwnedSocket(listener)
        self.path, self._inode = path, os.stat(path).st_ino

    def reopen_if_removed(self) -> None:
        """Listen again if the socket file was removed, as a logout does with XDG_RUNTIME_DIR.

        Raises:
            ProbeEndedError: No folder can be used.
        """
        try:
            is_present = self.path is not None and os.stat(self.path).st_ino == self._inode
        except OSError:
            is_present = False
        if not is_present:
            self.open()

    def wait(self, seconds: float, wakeup: OwnedSocket) -> list[tuple[ClientConnection, int]]:
        """Wait for clients.

        Args:
            seconds: Longest time to wait.
            wakeup: A socket that ends the wait when it becomes readable.

        Returns:
            The clients that need attention with their poll events; without events for one that is new or writable.

        Raises:
            ProbeEndedError: The program closed the listening socket or `wakeup`.
        """
        listener = self._listener
        assert listener is not None
        poll = select.poll()
        poll.register(listener.get(), select.POLLIN)
        poll.register(wakeup.get(), select.POLLIN)
        for number, client in self.clients.items():
            poll.register(number, select.POLLIN | (select.POLLOUT if client.wants_to_write else 0))
        ready = []
        for number, events in poll.poll(max(0.0, seconds) * 1000.0):
            if number == listener.number:
                ready += self._accept(listener)
            elif number != wakeup.number:
                ready.append((self.clients[number], events & ~select.POLLOUT))
        return ready

    def _accept(self, listener: OwnedSocket) -> list[tuple[ClientConnection, int]]:
        try:
            connection, _ = listener.get().accept()
        except OSError:  # the program has no free descriptor; the connection stays in the backlog
            time.sleep(_ACCEPT_RETRY_SECONDS)
            return []
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if uid not in (os.getuid(), 0) or len(self.clients) >= _MAX_CLIENTS:
            connection.close()
            return []
        connection.setblocking(False)
        owned = OwnedSocket(connection)
        if owned.number in self.clients:  # the program closed that one
            self.drop(self.clients[owned.number])
        client = self.clients[owned.number] = ClientConnection(owned)
        return [(client, 0)]

    def drop(self, client: ClientConnection) -> None:
        """Close the connection of a client."""
        self.clients.pop(client.connection.number, None)
        client.connection.close()

    def close(self) -> None:
        """Close all sockets and remove the socket file; a forked child does not remove the one of its parent."""
        self.remove_file()  # before the clients: the one that asks for the end takes its own end for that of the socket
        if self._listener is not None:
            self._listener.close()
        for client in self.clients.values():
            client.connection.close()
        self.clients = {}

    def remove_file(self) -> None:
        """Remove the socket file, if this process created it."""
        path, self.path = self.path, None
        if path is not None and self._pid == os.getpid():
            with suppress(OSError):
                os.unlink(path)
