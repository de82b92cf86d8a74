"""Checks whether the probe of a process listens; `gpumon attach` needs no watcher for that."""

import socket
from contextlib import suppress
from itertools import chain
from pathlib import Path

from gpumon.core.deadline import Deadline
from gpumon.core.json_fields import object_in
from gpumon.probe.attach.target import Target
from gpumon.probe.socket_dir import FolderError, candidates, connect, opened, peer_of, socket_names

_MAX_BYTES = 1 << 16


def listening_in(target: Target, hello_seconds: float = 0.0) -> Path | None:
    """The folder of the socket on which the probe of a process listens, or None.

    Folders of another user are not searched, not even by root.

    Args:
        target: The process.
        hello_seconds: How long to wait for the message ``hello``; with 0 the probe does not have to send it.
    """
    for folder in dict.fromkeys(chain(candidates(target.environment()), candidates())):
        with suppress(OSError, FolderError), opened(folder) as descriptor:
            for name in socket_names(descriptor):
                if name.startswith(f"{target.own_pid}-") and _belongs_to(target, descriptor, name, hello_seconds):
                    return folder
    return None


def _belongs_to(target: Target, descriptor: int, name: str, hello_seconds: float) -> bool:
    with suppress(OSError), connect(descriptor, name) as connection:
        is_peer = peer_of(connection).pid == target.pid
        return is_peer and (hello_seconds <= 0.0 or _sends_hello(connection, hello_seconds))
    return False


def _sends_hello(connection: socket.socket, seconds: float) -> bool:
    """Whether the first line is the message ``hello``."""
    line = Deadline(seconds).reader(connection).readline(_MAX_BYTES)
    message = object_in(line)
    return message is not None and message.get("event") == "hello"
