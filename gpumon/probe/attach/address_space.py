"""The memory of another process through /proc/PID/mem: its mappings, the symbols of its Python, a few instructions.

Everything is read from memory, not from files: the interpreter may be in a container, deleted, or replaced, and no path
that its user can change is followed.
"""

import errno
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAX_CHAIN: Final = 4096
_MAX_TEXT_BYTES: Final = 64 << 20
_MAX_FILES: Final = 64
_MAX_DYNAMIC_BYTES: Final = 1 << 16
_ET_EXEC, _ET_DYN, _PT_LOAD, _PT_DYNAMIC = 2, 3, 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
"""From elf.h."""
_MAX_ADDRESS: Final = (1 << 64) - 1
_LINE: Final = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ *(.*)")


@dataclass(frozen=True, slots=True)
class Mapping:
    """A line of /proc/PID/maps."""

    start: int
    end: int
    access: str
    offset: int
    path: str

    @property
    def file_name(self) -> str:
        """The last part of its path."""
        return self.path.removesuffix(" (deleted)").rpartition("/")[2]


class AddressSpace:
    """The memory of a process as it is now; if the process runs another program later, nothing can be read.

    Args:
        pid: The process.
        proc: Root of the proc file system.

    Raises:
        OSError: The kernel does not allow it, or the process has ended.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._descriptor = os.open(proc / str(pid) / "mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            self.mappings = list(_mappings((proc / str(pid) / "maps").read_bytes()))
        except BaseException:
            self.close()
            raise

    def read(self, address: int, length: int) -> bytes:
        """Bytes at an address.

        Raises:
            OSError: There is no such memory, or the process has ended or runs another program.
        """
        content = os.pread(self._descriptor, length, _offset(address))
        if len(content) != length:
            raise ProcessLookupError("the memory is gone")
        return content

    def write(self, address: int, content: bytes) -> None:
        """Write bytes, also to memory that the process itself cannot write.

        Raises:
            OSError: There is no such memory, or the process has ended or runs another program.
        """
        if os.pwrite(self._descriptor, content, _offset(address)) != len(content):
            raise ProcessLookupError("the memory is gone")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def find_code(self, *patterns: bytes) -> list[int] | None:
        """The address of each pattern in the C library, or else in another program file; None if one is missing."""
        wanted = dict.fromkeys(patterns, 0)
        files = [item for item in self.mappings if "x" in item.access and item.path.startswith(("/", "[vdso]"))]
        files.sort(key=lambda item: not re.match(r"libc[.-]|ld-musl|libpthread", item.file_name))
        for item in files[:_MAX_FILES]:
            try:
                text = self.read(item.start, min(item.end - item.start, _MAX_TEXT_BYTES))
            except OSError:
                continue
            for pattern in patterns:
                position = text.find(pattern)
                if position >= 0 and not wanted[pattern]:
                    wanted[pattern] = item.start + position
            if all(wanted.values()):
                return list(wanted.values())
        return None


class Image:
    """A program or library in memory, with its table of dynamic symbols.

    Args:
        space: The memory.
        start: Where its file begins in memory.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a 64-bit ELF file, or has no table with a GNU hash.
    """

    def __init__(self, space: AddressSpace, start: int) -> None:
        self._space = space
        header = space.read(start, 64)
        (kind,) = struct.unpack_from("<H", header, 16)
        if header[:5] != b"\x7fELF\x02" or kind not in {_ET_EXEC, _ET_DYN}:
            raise ValueError("no 64-bit ELF file")
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        segments = [struct.unpack("<IIQQQQQQ", space.read(start + offset + i * size, 56)) for i in range(count)]
        first = next((segment[3] for segment in segments if segment[0] == _PT_LOAD), 0)
        self._bias = 0 if kind == _ET_EXEC else start - (first & ~0xFFF)
        tables: dict[int, int] = {}
        for segment in segments:
            if segment[0] == _PT_DYNAMIC:
                raw = space.read(self._bias + segment[3], min(segment[6], _MAX_DYNAMIC_BYTES) & ~15)
                tables.update(struct.iter_unpack("<QQ", raw))
        if not {_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH} <= tables.keys():
            raise ValueError("no dynamic symbols")
        self._names, self._symbols, self._hash = (
            table if table >= start else table + self._bias  # glibc has made them addresses, musl does not
            for table in (tables[_DT_STRTAB], tables[_DT_SYMTAB], tables[_DT_GNU_HASH])
        )
        self._buckets, self._first, self._bloom, _ = struct.unpack("<4I", space.read(self._hash, 16))

    def find(self, name: str) -> tuple[int, int] | None:
        """Address and size of a symbol, or None."""
        encoded = name.encode() + b"\0"
        hashed = 5381
        for byte in encoded[:-1]:
            hashed = (hashed * 33 + byte) & 0xFFFFFFFF
        table = self._hash + 16 + 8 * self._bloom
        (index,) = struct.unpack("<I", self._space.read(table + 4 * (hashed % max(1, self._buckets)), 4))
        chains = table + 4 * self._buckets
        for position in range(index, index + _MAX_CHAIN if index >= self._first else index):
            (chained,) = struct.unpack("<I", self._space.read(chains + 4 * (position - self._first), 4))
            if chained | 1 == hashed | 1:
                offset, _, _, section, value, size = struct.unpack(
                    "<IBBHQQ", self._space.read(self._symbols + 24 * position, 24)
                )
                if section and self._space.read(self._names + offset, len(encoded)) == encoded:
                    return (self._bias + value) & _MAX_ADDRESS, size
            if chained & 1:
                break
        return None


def _offset(address: int) -> int:
    if not 0 <= address < 1 << 63:
        raise OSError(errno.EIO, "no address of a process")
    return address


def _mappings(text: bytes) -> Iterator[Mapping]:
    for match in _LINE.finditer(text):
        start, end, access, offset, path = match.groups()
        yield Mapping(int(start, 16), int(end, 16), access.decode(), int(offset, 16), os.fsdecode(path))
