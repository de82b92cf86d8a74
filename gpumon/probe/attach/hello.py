"""Whether a process has a probe that listens, found out once and by itself: `gpumon attach` follows none."""

import json
import socket
from contextlib import suppress
from itertools import chain
from pathlib import Path

from gpumon.probe.attach.target import Target
from gpumon.probe.folder import FolderError, candidates, connect, opened, peer_of, socket_names

_MOST_BYTES = 1 << 16


def listening_in(target: Target, hello_seconds: float = 0.0) -> Path | None:
    """The folder of the socket on which a process's probe listens, or None.

    Another user's folder is not looked into, even by root.

    Args:
        target: The process.
        hello_seconds: How long its probe may take to say who it is; with 0 it need not.
    """
    for folder in dict.fromkeys(chain(candidates(target.environment()), candidates())):
        with suppress(OSError, FolderError), opened(folder) as descriptor:
            for name in socket_names(descriptor):
                if name.startswith(f"{target.own_pid}-") and _is_its(target, descriptor, name, hello_seconds):
                    return folder
    return None


def _is_its(target: Target, descriptor: int, name: str, hello_seconds: float) -> bool:
    with suppress(OSError), connect(descriptor, name) as connection:
        return peer_of(connection).pid == target.pid and (hello_seconds <= 0.0 or _hello(connection, hello_seconds))
    return False


def _hello(connection: socket.socket, seconds: float) -> bool:
    """Whether the first line is one of a probe."""
    connection.settimeout(seconds)
    line = b""
    while b"\n" not in line:
        more = connection.recv(4096)
        line += more
        if not more or len(line) > _MOST_BYTES:
            return False
    try:
        told = json.loads(line.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("event") == "hello"
