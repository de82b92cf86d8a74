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
from typing import Any, Final

from gpumon.core.limited_child import MessageWriter, end_with_pipe, run_limited
from gpumon.core.source_file import SourceFile
from gpumon.snapshots.build import build_snapshot
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.model import MAX_BYTES, Snapshot, encode
from gpumon.snapshots.oom_file import begins_as_json, oom_snapshot

_MAX_EXPANSION: Final = 100
"""Compressed snapshots expand to 10 to 20 times their size."""


def main() -> None:
    """Read standard input within the limits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="")
    parser.add_argument("--largest", type=int, default=0)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    options = parser.parse_args()
    writer = MessageWriter(MAX_BYTES)

    def read() -> dict[str, Any]:
        return {"event": "result", "snapshot": encode(_read(writer, options.name, options.largest))}

    run_limited(read, writer, options.memory, options.seconds)


def _read(writer: MessageWriter, name: str, largest: int) -> Snapshot:
    file = SourceFile(0, _MAX_EXPANSION)
    if begins_as_json(file.peek()):
        return oom_snapshot(file, name)
    loader = SnapshotLoader(file, lambda _: writer.progress(file.read_bytes))
    root = loader.run()
    writer.write({"event": "progress", "read_bytes": file.size_bytes})
    return build_snapshot(loader, root, name, file.size_bytes, largest)


if __name__ == "__main__":
    end_with_pipe(main)
