"""Reads a trace in a child process with resource limits."""

import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.file_reader import FileReader, ReaderLimits, read_all
from gpumon.traces.columns import TraceColumns
from gpumon.traces.model import Trace, decode

READER: Final = Path(__file__).with_name("__main__.py")
MAX_BYTES: Final = 256 << 20
"""Maximum size of the message with the result."""
MAX_EVENTS: Final = 20_000_000
"""A file that will have more is refused as soon as its first events show it."""
_MIN_MEMORY_BYTES: Final = 1 << 30
_MEMORY_PER_FILE_BYTE: Final = 2
"""Memory allowed for each byte of the file; an ordinary file takes half a byte."""
_MIN_SECONDS: Final = 60
_MIN_BYTES_PER_SECOND: Final = 1_000_000
"""A hostile file may take longer and is rejected; an ordinary file is read and evaluated ten times as fast."""
_MAX_COMPRESSION_RATIO: Final = 30
"""Assumed for a compressed file."""
_REMEDY: Final = "Use a file that torch.profiler's export_chrome_trace() or Kineto wrote."


class OpenTrace(NamedTuple):
    """A trace and the columns of its timeline."""

    trace: Trace
    columns: TraceColumns


class TraceReader(FileReader[OpenTrace]):
    """Reads one file.

    Raises:
        CommandError: The file does not exist or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        limits = ReaderLimits(
            _MIN_MEMORY_BYTES, _MEMORY_PER_FILE_BYTE, _MIN_SECONDS, _MIN_BYTES_PER_SECOND, _MAX_COMPRESSION_RATIO
        )
        super().__init__(path, limits, _REMEDY, MAX_BYTES)
        self._columns = os.memfd_create("gpumon-trace")

    def script(self) -> Path:
        """The program of the child."""
        return READER

    def arguments(self) -> list[str]:
        """The arguments of the child."""
        return [*super().arguments(), f"--columns={self._columns}"]

    def descriptors(self) -> tuple[int, ...]:
        """The memory that receives the columns."""
        return (self._columns,)

    def decode(self, message: dict[str, Any]) -> OpenTrace:
        """The trace in the last message of the child."""
        trace = decode(message["trace"])
        opened = OpenTrace(trace, TraceColumns(self._columns, trace.lanes))
        self.close()
        return opened

    def close(self) -> None:
        """Close the memory that was shared with the child; mapped columns keep a duplicate."""
        if self._columns >= 0:
            os.close(self._columns)
            self._columns = -1


def read(path: Path) -> OpenTrace:
    """Read a file and wait for the result, as `read_traces` does; raises the same."""
    return read_traces(path)[0]


def read_traces(*paths: Path) -> list[OpenTrace]:
    """Read files, all at the same time, and wait for the results.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    readers: list[TraceReader] = []
    try:
        for path in paths:
            readers.append(TraceReader(path))
        return read_all(readers)
    finally:
        for reader in readers:
            reader.close()
