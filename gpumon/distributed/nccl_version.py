"""The version of NCCL that a process has loaded, from outside: by the name of the file, or by a text inside it."""

import mmap
import re
import struct
from pathlib import Path
from typing import Final

Version = tuple[int, int, int]
_MAX_MAPS_BYTES: Final = 8 << 20
_MAX_SECTIONS: Final = 256
_MAX_DATA_BYTES: Final = 32 << 20
"""Read-only data of the library that is searched; the code for GPUs, hundreds of MiB, is in other sections."""
_LIBRARY: Final = re.compile(rb"/\S*/libnccl\.so[.\d]*$", re.MULTILINE)
_IN_NAME: Final = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
_IN_DATA: Final = re.compile(rb"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""``Elf64_Ehdr``."""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""``Elf64_Shdr``."""
_known: Final[dict[tuple[int, int, int], Version | None]] = {}
"""Version by device, inode and time of change of the library: a host has few of them."""


def nccl_version(pid: int, proc: Path = Path("/proc")) -> Version | None:
    """The version of NCCL in a process; None if it has loaded none, or if that cannot be read."""
    folder = proc / str(pid)
    try:
        with (folder / "maps").open("rb") as file:
            match = _LIBRARY.search(file.read(_MAX_MAPS_BYTES))
        if match is None:
            return None
        path = match[0].decode()
        named = _IN_NAME.search(path)
        if named is not None:
            return int(named[1]), int(named[2]), int(named[3])
        library = folder / "root" / path.lstrip("/")
        status = library.stat()
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if identity not in _known:
            _known[identity] = _version_in(library)
        return _known[identity]
    except (OSError, ValueError, struct.error):  # the process has ended, or the file is no library
        return None


def _version_in(library: Path) -> Version | None:
    """The version in the read-only data of a library."""
    with library.open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        if header[0][:5] != b"\x7fELF\x02" or header[11] != _SECTION.size or header[12] > _MAX_SECTIONS:
            return None
        file.seek(header[6])
        sections = [_SECTION.unpack(file.read(_SECTION.size)) for _ in range(header[12])]
        file.seek(sections[header[13]][4])
        names = file.read(min(sections[header[13]][5], _MAX_MAPS_BYTES))
        for section in sections:
            name = names[section[0] :].split(b"\0", 1)[0]
            if name.startswith(b".rodata"):
                version = _search(file.fileno(), section[4], min(section[5], _MAX_DATA_BYTES))
                if version is not None:
                    return version
    return None


def _search(descriptor: int, offset: int, size: int) -> Version | None:
    """The version in a part of a file."""
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(descriptor, offset + size - start, prot=mmap.PROT_READ, offset=start) as data:
        match = _IN_DATA.search(data)
        return None if match is None else (int(match[1]), int(match[2]), int(match[3]))
