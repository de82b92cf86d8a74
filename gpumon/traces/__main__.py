"""The child process that reads a trace: standard input is the file, standard output the pipe to gpumon.

The events of the timeline go into memory that gpumon has opened. gpumon starts the child by path, so that the user's
working directory is never on ``sys.path``.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import argparse
from typing import Any, Final

from gpumon.core.limited_child import MessageWriter, end_with_pipe, run_limited
from gpumon.core.source_file import SourceFile, UnreadableError
from gpumon.traces.build import TraceFile, build_trace
from gpumon.traces.event_stream import EventStream
from gpumon.traces.kinds import Kind
from gpumon.traces.model import encode
from gpumon.traces.reader import MAX_BYTES, MAX_EVENTS
from gpumon.traces.table import EventTable

_MAX_EXPANSION: Final = 300
"""Compressed traces expand to 20 to 60 times their size."""
_EVENT_BYTES: Final = 300
"""Memory that an event takes while its trace is evaluated; while it is read, 40."""


def main() -> None:
    """Read standard input within the limits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="")
    parser.add_argument("--columns", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    options = parser.parse_args()
    writer = MessageWriter(MAX_BYTES)

    def read() -> dict[str, Any]:
        file, table = SourceFile(0, _MAX_EXPANSION), EventTable()

        most = min(MAX_EVENTS, options.memory // _EVENT_BYTES)

        def counts() -> list[tuple[str, int]]:
            return [("kernel", table.counts[Kind.KERNEL]), ("operator", table.counts[Kind.OPERATOR])]

        def report() -> None:
            events = len(table) * file.size_bytes // max(file.read_bytes, 1)
            if events > most:
                raise UnreadableError(f"has about {events:,} events; gpumon reads up to {most:,} on this host")
            writer.progress(file.read_bytes, counts)

        stream = EventStream(file, report)
        table.add_all(stream.events())
        writer.write({"event": "progress", "read_bytes": file.size_bytes, "counts": counts()})
        trace = build_trace(
            table, TraceFile(options.name, file.size_bytes, stream.header, stream.damage), options.columns
        )
        return {"event": "result", "trace": encode(trace)}

    run_limited(read, writer, options.memory, options.seconds)


if __name__ == "__main__":
    end_with_pipe(main)
