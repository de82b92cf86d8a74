"""The process that reads a snapshot: standard input is the file, standard output the pipe to gpumon.

It lives apart so that a file that was made to do harm meets limits that the kernel keeps, and so that it can be ended
at any moment. It writes JSON lines: progress, then one result, or the reason why there is none. It is started by path,
so that the user's working directory is never on ``sys.path``.
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

from gpumon.snapshots.assemble import snapshot
from gpumon.snapshots.codec import MOST_BYTES, encoded
from gpumon.snapshots.loader import Loader
from gpumon.snapshots.machine import UnreadableError
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.oom_file import begins_as_json, oom_snapshot
from gpumon.snapshots.source import SnapshotFile

_PROGRESS_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_SPARE_BYTES: Final = 8 << 20


class Teller:
    """Writes what gpumon is told, progress at most every tenth of a second."""

    def __init__(self) -> None:
        self._next = 0.0

    def progress(self, read_bytes: int) -> None:
        """So much of the file was read."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_SECONDS
            self.tell({"event": "progress", "read_bytes": read_bytes})

    def tell(self, message: dict[str, Any]) -> None:
        """Writes a line."""
        line = json.dumps(message) + "\n"
        if len(line) > MOST_BYTES:
            line = json.dumps({"event": "refused", "reason": "holds more than gpumon can show"}) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()


def main() -> None:
    """Reads standard input within the limits."""
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
    gc.disable()  # what is made by the million is kept to the end, and looking through it again and again costs half
    teller = Teller()
    spare = bytearray(_SPARE_BYTES)
    message = _outcome(teller, options.name, options.largest)
    if message is None:
        del spare  # what was read may not be gone, and there must be room for saying so
        limit = options.memory >> 20
        message = {"event": "refused", "reason": f"needs more memory to read than the {limit} MiB that it may take"}
    teller.tell(message)


def _outcome(teller: Teller, name: str, largest: int) -> dict[str, Any] | None:
    """What gpumon is told in the end, or None where the memory does not suffice."""
    try:
        return {"event": "result", "snapshot": encoded(_read(teller, name, largest))}
    except UnreadableError as error:
        return {"event": "refused", "reason": str(error)}
    except MemoryError:
        return None


def _read(teller: Teller, name: str, largest: int) -> Snapshot:
    file = SnapshotFile(0)
    if begins_as_json(file.peek()):
        return oom_snapshot(file, name)
    loader = Loader(file, lambda _: teller.progress(file.read_bytes))
    root = loader.run()
    teller.tell({"event": "progress", "read_bytes": file.size_bytes})
    return snapshot(loader, root, name, file.size_bytes, largest)


def _end_with_gpumon() -> None:
    """Ends this process soon after gpumon was killed: long stretches of the work write nothing that would fail."""
    parent = os.getppid()

    def look(*_: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)


def _limit(what: int, most: int) -> None:
    """Sets a limit, unless a lower one is in force."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # at its very end Python takes no signals any more, and it would kill
