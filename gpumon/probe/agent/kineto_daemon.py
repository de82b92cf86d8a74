"""The datagram socket of the daemon that Kineto's client asks. Each datagram is a header and a body."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

from .owned_socket import OwnedSocket
from .written_files import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_HEADER = struct.Struct("<Q32s")
"""Size of the body, and kind of the message."""
_REQUEST = struct.Struct("<i")
_ACCEPTS_ACTIVITIES = 2
"""Bit of a request's type: Kineto is not recording."""
_MAX_DATAGRAM = 65536
_NAME = "dynolog"
"""Kineto's client knows its daemon under this name only."""


class DaemonSocket:
    """The socket; it exists only while a trace is wanted.

    Args:
        folder: The private folder in which Kineto's client has its own socket.

    Raises:
        OSError: The process has no free descriptor.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _NAME)
        self._pid = os.getpid()
        remove(self._path)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            own.setblocking(False)
            own.bind(self._path)
        except OSError:
            own.close()
            raise
        self._socket: OwnedSocket | None = OwnedSocket(own)

    def close(self) -> None:
        """Close the socket; in a forked child, leave the file to the parent.

        The file is removed first: without it, Kineto gives up at once; else it would try for 20 s.
        """
        own, self._socket = self._socket, None
        if own is not None:
            if self._pid == os.getpid():
                remove(self._path)
            own.close()

    def requests(self) -> Iterator[tuple[bool, Any]]:
        """For each request that has arrived: whether Kineto could record now, and the address for the answer."""
        while self._socket is not None:
            try:
                data, address = self._socket.get().recvfrom(_MAX_DATAGRAM)
            except BlockingIOError:
                return
            if len(data) < _HEADER.size + _REQUEST.size:
                continue
            kind = _HEADER.unpack_from(data)[1].split(b"\0")[0]
            if kind == b"ctxt":  # a client registers; the answer is the number of clients
                self._send(kind, struct.pack("<i", 1), address)
            elif kind == b"req":
                yield bool(_REQUEST.unpack_from(data, _HEADER.size)[0] & _ACCEPTS_ACTIVITIES), address

    def answer(self, configuration: bytes, address: Any) -> bool:
        """Answer a request, with an empty configuration if there is nothing to do; return whether that was sent."""
        return self._send(b"req", configuration, address)

    def _send(self, kind: bytes, body: bytes, address: Any) -> bool:
        with suppress(BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            if self._socket is not None:
                self._socket.get().sendto(_HEADER.pack(len(body), kind) + body, address)
                return True
        return False
