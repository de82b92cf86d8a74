"""Speaks with the probe of one process: whether it listens, and that it end; that needs no watcher."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from gpumon.core.deadline import Deadline
from gpumon.core.json_fields import Json, object_in
from gpumon.core.json_text import json_bytes
from gpumon.probe.attach.target import Target
from gpumon.probe.socket_dir import FolderError, candidates, connect, opened, peer_of, socket_names

_MAX_BYTES: Final = 1 << 16


def listening_in(target: Target, hello_seconds: float = 0.0) -> Path | None:
    """The folder of the socket on which the probe of a process listens, or None; also if no ``hello`` comes in time."""
    with _connected(target) as (connection, folder):
        if connection is None or hello_seconds <= 0.0 or _read(connection, "hello", hello_seconds) is not None:
            return folder
    return None


def end_probe(target: Target, seconds: float) -> bool | None:
    """Have the probe of a process end; return whether it has closed its connection in time, None if none listens."""
    with _connected(target) as (connection, _), suppress(OSError):
        if connection is None:
            return None
        connection.sendall(json_bytes({"ask": "detach", "id": 1}))
        answer = _read(connection, "answer", seconds)
        return answer is not None and answer.get("ok") is True and _is_closed(connection, seconds)
    return False


@contextmanager
def _connected(target: Target) -> Iterator[tuple[socket.socket | None, Path | None]]:
    """A connection to the probe of a process, and the folder of its socket."""
    theirs = (target.seen(folder) for folder in candidates(target.environment(), target.own_uid))
    for folder in dict.fromkeys(chain(theirs, () if target.is_foreign else candidates())):
        connection = _connection(target, folder)
        if connection is not None:
            with connection:
                yield connection, folder
            return
    yield None, None


def _connection(target: Target, folder: Path) -> socket.socket | None:
    with suppress(OSError, FolderError), opened(folder, target.uid) as descriptor:
        for name in socket_names(descriptor):
            if name.startswith(f"{target.own_pid}-"):
                with suppress(OSError):
                    connection = connect(descriptor, name)
                    if peer_of(connection).pid == target.pid:
                        return connection
                    connection.close()
    return None


def _read(connection: socket.socket, event: str, seconds: float) -> Json | None:
    """The next message of a kind, or None if it does not come in time."""
    with suppress(OSError), Deadline(seconds).reader(connection) as reader:
        while line := reader.readline(_MAX_BYTES):
            message = object_in(line)
            if message is not None and message.get("event") == event:
                return message
    return None


def _is_closed(connection: socket.socket, seconds: float) -> bool:
    """Whether the other end closes the connection in time."""
    with suppress(OSError), Deadline(seconds).reader(connection) as reader:
        while reader.read(_MAX_BYTES):
            pass
        return True
    return False
