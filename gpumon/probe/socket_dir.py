"""Where the sockets of probes may be, and which folders and sockets are trusted.

A probe creates its folder with access for its user only. gpumon does not use a folder that is a symbolic link, belongs
to another user or is open to others, nor a socket on which a process of another user listens. Root uses the folders of
other users likewise, with the rights of their users. The agent has its own copy of these rules, because it runs where
gpumon is not installed.
"""

import os
import re
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.acting_user import acting_as
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import effective_uid
from gpumon.core.text import safe_text

_SOCKET_NAME: Final = re.compile(r"\d{1,10}-[0-9a-f]{8}\.sock", re.ASCII)
_BOUND_SOCKET: Final = re.compile(rb" (/.*)/(\d{1,10})-[0-9a-f]{8}\.(?:sock|part)$", re.MULTILINE)
"""The end of a line of /proc/net/unix, with the name that the socket had before the probe renamed it."""
_CONTAINER: Final = re.compile(r"/proc/\d+(?=/root\b)")
_MAX_ENTRIES: Final = 4096
_CREDENTIALS: Final = struct.Struct("3i")
_REMEDY: Final = "Set GPUMON_PROBE_DIR, for gpumon and for the training job, to a folder that only you can access."


class FolderError(Exception):
    """A folder exists and is not used; ``problem`` gives the reason."""

    def __init__(self, folder: Path, reason: str) -> None:
        sentence = f"gpumon ignores probes in {safe_text(str(folder), 200)}: {reason}."
        super().__init__(sentence)
        self.problem = Problem(ProblemCode.NO_PERMISSION, sentence, _REMEDY)


class Peer(NamedTuple):
    """The process that listens on a socket, as the kernel reports it.

    Attributes:
        pid: Its PID in the PID namespace of gpumon; 0 if the process is not visible there.
        uid: Its user ID.
    """

    pid: int
    uid: int


def candidates(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> tuple[Path, ...]:
    """The folders in which probes of a user may listen, best first: only GPUMON_PROBE_DIR if that is set.

    Args:
        environ: The environment of the program.
        uid: The user ID as the program sees it, or None for that of gpumon.
    """
    uid = os.getuid() if uid is None else uid
    if environ.get("GPUMON_PROBE_DIR"):
        return (Path(environ["GPUMON_PROBE_DIR"]),)
    folders = [
        *([Path(environ["XDG_RUNTIME_DIR"], "gpumon")] if environ.get("XDG_RUNTIME_DIR") else []),
        Path(f"/run/user/{uid}/gpumon"),
        Path(f"/tmp/gpumon-{uid}"),  # noqa: S108 - `opened` checks the owner and the mode
    ]
    return tuple(dict.fromkeys(folders))


class SocketFolder(NamedTuple):
    """A folder in which probes of a user may listen."""

    path: Path
    uid: int


def socket_folders(named: Iterable[Path] | None = None) -> Iterator[SocketFolder]:
    """Where probes may listen now: the candidates and, for root, where those of other users do.

    Args:
        named: Folders to use instead.
    """
    for folder in candidates() if named is None else named:
        with suppress(OSError):
            container = _CONTAINER.match(str(folder)) if os.geteuid() == 0 else None
            yield SocketFolder(folder, effective_uid(container[0]) if container else os.getuid())
    if named is None and os.geteuid() == 0 and not os.environ.get("GPUMON_PROBE_DIR"):
        yield from dict.fromkeys(_folders_of_other_users())


def _folders_of_other_users() -> Iterator[SocketFolder]:
    """Where the sockets of this network namespace are bound."""
    with suppress(OSError), Path("/proc/net/unix").open("rb") as file:
        for path, pid in islice({match.groups() for match in map(_BOUND_SOCKET.search, file) if match}, _MAX_ENTRIES):
            with suppress(OSError):
                uid = effective_uid(f"/proc/{int(pid)}")
                if uid != os.geteuid():  # any user may name a socket after a process of root
                    yield SocketFolder(Path(os.fsdecode(path)), uid)


@contextmanager
def opened(folder: Path, uid: int | None = None) -> Iterator[int]:
    """Open a folder and check that it can be trusted; files are accessed with the rights of its user meanwhile.

    Args:
        folder: The folder.
        uid: Its user, or None for that of gpumon; root may name another one.

    Returns:
        A descriptor. Operations relative to it apply to the folder that was checked, even if its path is replaced.

    Raises:
        FileNotFoundError: The folder does not exist.
        FolderError: It cannot be trusted or read.
    """
    uid = os.getuid() if uid is None else uid
    with acting_as(uid):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise FolderError(folder, "the path is not a folder, or is a symbolic link") from None
        except (OSError, ValueError) as error:  # ValueError: a name with a null byte
            raise FolderError(folder, safe_text(getattr(error, "strerror", None) or str(error), 100)) from None
        try:
            status = os.fstat(descriptor)
            if status.st_uid != uid:
                raise FolderError(folder, "the folder belongs to another user")
            if status.st_mode & 0o077:
                raise FolderError(folder, "other users can access the folder")
            yield descriptor
        finally:
            os.close(descriptor)


def socket_names(descriptor: int) -> list[str]:
    """The names of probe sockets in an opened folder. The number of entries read is limited."""
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in islice(entries, _MAX_ENTRIES) if _SOCKET_NAME.fullmatch(entry.name))


def connect(descriptor: int, name: str) -> socket.socket:
    """Connect to a socket in an opened folder, without blocking and whatever the length of its path.

    Raises:
        ConnectionRefusedError: No process listens on it; the socket file is removed.
        BlockingIOError: The backlog of the listening process is full.
        OSError: The name does not exist or is not a socket, or too many files are open.
    """
    if not stat.S_ISSOCK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
        raise OSError(f"{name} is not a socket")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    except ConnectionRefusedError:
        connection.close()
        with suppress(OSError):  # another gpumon removed it first
            os.unlink(name, dir_fd=descriptor)
        raise
    except OSError:
        connection.close()
        raise
    return connection


def peer_of(connection: socket.socket) -> Peer:
    """The process at the other end of a connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)
