"""Recognizes the probe's own sockets: a program that closes all descriptors may use their numbers for its files."""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

_SOL_SOCKET, _SO_COOKIE = 1, 57
"""From asm-generic/socket.h; Python does not define SO_COOKIE."""
_COOKIE_BYTES = 8


class ProbeEndedError(Exception):
    """The probe has to end: it was stopped, no folder can hold its socket, or the program cannot host it."""


class OwnedSocket:
    """A socket of the probe, or what the program has put in its place.

    Args:
        own: The socket, just created.

    Attributes:
        number: Its descriptor.
    """

    def __init__(self, own: socket) -> None:
        self.number = own.fileno()
        self._own = own
        self._identity = self._read_identity()

    def get(self) -> socket:
        """The socket, to be used at once: the program may close it whenever this thread does not hold the GIL.

        Raises:
            ProbeEndedError: It was closed.
        """
        if not self._is_intact:
            raise ProbeEndedError("the program closed a descriptor of the probe")
        return self._own

    def close(self) -> None:
        """Close the socket if it is still the probe's; leave its number to the program otherwise."""
        if self._is_intact:
            self._own.close()
        else:
            self._own.detach()

    @property
    def _is_intact(self) -> bool:
        return self._identity is not None and self._read_identity() == self._identity

    def _read_identity(self) -> object:
        """What distinguishes this socket from all others, None if it is not open."""
        with suppress(OSError):  # no socket, or a kernel before 4.12
            return self._own.getsockopt(_SOL_SOCKET, _SO_COOKIE, _COOKIE_BYTES)  # does not release the GIL
        with suppress(OSError):
            status = os.fstat(self._own.fileno())
            return status.st_dev, status.st_ino
        return None
