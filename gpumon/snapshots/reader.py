"""Reads a snapshot in a child process with resource limits."""

from pathlib import Path
from typing import Any, Final

from gpumon.core.file_reader import FileReader, ReaderLimits, read_to_end
from gpumon.snapshots.model import MAX_BYTES, Snapshot, decode

READER: Final = Path(__file__).with_name("__main__.py")
_MIN_MEMORY_BYTES: Final = 1 << 30
_MEMORY_PER_FILE_BYTE: Final = 4
"""Memory allowed for each byte of the file; an ordinary file takes a third of a byte."""
_MIN_SECONDS: Final = 60
_MIN_BYTES_PER_SECOND: Final = 2_000_000
"""A hostile file may take longer and is rejected; an ordinary file is read twenty times as fast."""
_MAX_COMPRESSION_RATIO: Final = 20
"""Assumed for a compressed file."""


class SnapshotReader(FileReader[Snapshot]):
    """Reads one file.

    ``largest`` is how many of the largest allocations of each device are returned individually.

    Raises:
        CommandError: The file does not exist or cannot be opened.
    """

    def __init__(self, path: Path, largest: int = 0) -> None:
        limits = ReaderLimits(
            _MIN_MEMORY_BYTES, _MEMORY_PER_FILE_BYTE, _MIN_SECONDS, _MIN_BYTES_PER_SECOND, _MAX_COMPRESSION_RATIO
        )
        super().__init__(path, limits, "Use a file that torch.cuda.memory._dump_snapshot() wrote.", MAX_BYTES)
        self._largest = largest

    def script(self) -> Path:
        """The program of the child."""
        return READER

    def arguments(self) -> list[str]:
        """The arguments of the child."""
        return [*super().arguments(), f"--largest={self._largest}"]

    def decode(self, message: dict[str, Any]) -> Snapshot:
        """The snapshot in the last message of the child."""
        return decode(message["snapshot"])


def read(path: Path, largest: int = 0) -> Snapshot:
    """Read a file and wait for the result.

    Raises:
        CommandError: The file does not exist or cannot be read.
    """
    return read_to_end(SnapshotReader(path, largest))
