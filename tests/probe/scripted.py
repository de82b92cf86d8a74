"""A probe that says what a test wants, on a real socket."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Behave = Callable[[socket.socket], None]

GIB = 1 << 30
DEVICE: dict[str, Any] = {
    "ordinal": 0, "uuid": "GPU-00000000-4d6f-5b6b-8c01-000000000000", "name": "NVIDIA H200",
    "allocated_bytes": 30 * GIB, "reserved_bytes": 40 * GIB, "active_bytes": 31 * GIB, "inactive_split_bytes": 3 * GIB,
    "small_pool": {"allocated_bytes": 1, "reserved_bytes": 4, "active_bytes": 2, "inactive_split_bytes": 1},
}  # fmt: skip
SEGMENT: dict[str, Any] = {
    "ordinal": 0, "address": 0x7F0000000000, "size_bytes": 2 << 20, "stream": 0, "pool": [0, 0], "is_large": False,
    "is_expandable": False, "blocks": [[1 << 20, 1000, 0], [1 << 19, 0, 1], [1 << 19, 0, 2]],
}  # fmt: skip


def line(document: Any) -> bytes:  # noqa: ANN401
    return json.dumps(document).encode() + b"\n"


def hello(**changes: Any) -> bytes:  # noqa: ANN401
    said = {"schema": 1, "event": "hello", "pid": 7, "argv": ["python", "train.py"], "python_version": "3.12.3"}
    return line({**said, "rank": 3, "settings": {"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, **changes})


def statistics(**changes: Any) -> bytes:  # noqa: ANN401
    said = {"event": "statistics", "state": "live", "reason": "", "monotonic_seconds": 5.5, "devices": [DEVICE]}
    return line({**said, "torch_version": "2.11.0+cu130", "backend": "native", "expandable_segments": False, **changes})


def answer(number: object, **body: Any) -> bytes:  # noqa: ANN401
    return line({"event": "answer", "id": number, "ok": True, "reason": "", **body})


def greet(connection: socket.socket) -> None:
    """Send the greeting and one reading, then nothing until the client disconnects."""
    connection.sendall(hello() + statistics())
    until_gone(connection)


def until_gone(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def requests(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """The client's requests other than its pace."""
    with connection.makefile("rb") as stream:
        for said in map(json.loads, stream):
            if said["ask"] != "pace":
                yield said


@contextmanager
def listening(folder: Path, behave: Behave = greet, name: str | None = None) -> Iterator[Path]:
    """A probe in this process; each connection is served by ``behave`` in its own thread."""
    path = folder / (name or f"{os.getpid()}-{os.urandom(4).hex()}.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behave(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), name="scripted", daemon=True).start()

    thread = threading.Thread(target=accept, name="scripted", daemon=True)
    thread.start()
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
