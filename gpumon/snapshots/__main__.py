"""The child process that reads a snapshot: standard input is the file, standard output the pipe to gpumon.

It is a separate process so that the kernel enforces resource limits on a hostile file, and so that gpumon can kill it
at any time. It writes JSON lines: its progress, then one result or the reason why there is none. gpumon starts it by
path, so that the user's working directory is never on ``sys.path``.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import argparse
import gc
import json
import os
import resource
import signal
import time
from typing import Any, Final

from gpumon.snapshots.build import build_snapshot
from gpumon.snapshots.codec import MAX_BYTES, encode
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.oom_file import begins_as_json, oom_snapshot
from gpumon.snapshots.pickle_reader import UnreadableError
from gpumon.snapshots.source import SnapshotFile

_PROGRESS_SECONDS: Final = 0.1
_PARENT_CHECK_SECONDS: Final = 0.5
_RESERVE_BYTES: Final = 8 << 20


class MessageWriter:
    """Writes messages to gpumon; progress at most every tenth of a second."""

    def __init__(self) -> None:
        self._next_progress = 0.0

    def progress(self, read_bytes: int) -> None:
        """Report how many bytes of the file were read."""
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_SECONDS
            self.write({"event": "progress", "read_bytes": read_bytes})

    def write(self, message: dict[str, Any]) -> None:
        """Write a message as a line."""
        line = json.dumps(message) + "\n"
        if len(line) > MAX_BYTES:
            line = json.dumps({"event": "refused", "reason": "contains more than gpumon can show"}) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()


def main() -> None:
    """Read standard input within the limits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="")
    parser.add_argument("--largest", type=int, default=0)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    options = parser.parse_args()
    _limit(resource.RLIMIT_AS, options.memory)
    _limit(resource.RLIMIT_CPU, options.seconds)
    _limit(resource.RLIMIT_CORE, 0)
    _end_with_gpumon()
    gc.disable()  # millions of objects live to the end; collecting them repeatedly doubles the time
    writer = MessageWriter()
    reserve = bytearray(_RESERVE_BYTES)
    message = _outcome(writer, options.name, options.largest)
    if message is None:
        del reserve  # the memory of the file may not be freed yet, and the message needs some
        limit = options.memory >> 20
        message = {"event": "refused", "reason": f"needs more memory to read than the limit of {limit} MiB"}
    writer.write(message)


def _outcome(writer: MessageWriter, name: str, largest: int) -> dict[str, Any] | None:
    """The last message to gpumon, or None if the memory does not suffice."""
    try:
        return {"event": "result", "snapshot": encode(_read(writer, name, largest))}
    except UnreadableError as error:
        return {"event": "refused", "reason": str(error)}
    except MemoryError:
        return None


def _read(writer: MessageWriter, name: str, largest: int) -> Snapshot:
    file = SnapshotFile(0)
    if begins_as_json(file.peek()):
        return oom_snapshot(file, name)
    loader = SnapshotLoader(file, lambda _: writer.progress(file.read_bytes))
    root = loader.run()
    writer.write({"event": "progress", "read_bytes": file.size_bytes})
    return build_snapshot(loader, root, name, file.size_bytes, largest)


def _end_with_gpumon() -> None:
    """End this process soon after gpumon was killed: for a long time it may write nothing that would fail."""
    parent = os.getppid()

    def check_parent(*_: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signal.signal(signal.SIGALRM, check_parent)
    signal.setitimer(signal.ITIMER_REAL, _PARENT_CHECK_SECONDS, _PARENT_CHECK_SECONDS)


def _limit(kind: int, limit: int) -> None:
    """Set a resource limit, unless a lower one is in force."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # while Python finalizes, the signal would kill it
