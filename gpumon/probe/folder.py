"""Where the sockets of probes may be, and what is trusted there.

A probe makes its folder with nobody else's access; one that is a link, another user's or open to others is not looked
into, and a socket behind which another user listens is not listened to. The agent has these rules a second time: it is
a single file that runs where gpumon is not installed.
"""

import os
import re
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NAME: Final = re.compile(r"\d{1,10}-[0-9a-f]{8}\.sock", re.ASCII)
_MOST_ENTRIES: Final = 4096
_CREDENTIALS: Final = struct.Struct("3i")
_REMEDY: Final = "Set GPUMON_PROBE_DIR, here and for the training, to a folder that is only yours."


class FolderError(Exception):
    """A folder that is there and is not looked into; ``problem`` says why."""

    def __init__(self, folder: Path, reason: str, code: ProblemCode = ProblemCode.NO_PERMISSION) -> None:
        sentence = f"Probes in {safe_text(str(folder), 200)} are not looked at: {reason}."
        super().__init__(sentence)
        self.problem = Problem(code, sentence, _REMEDY)


class Peer(NamedTuple):
    """Who listens on a socket, as the kernel says.

    Attributes:
        pid: Its PID in this process's namespace; 0 if it is in one that cannot be seen from here.
        uid: Its user.
    """

    pid: int
    uid: int


def candidates(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The folders in which probes of this user may listen, the first choice of a probe first; one if it is named."""
    uid = os.getuid()
    if environ.get("GPUMON_PROBE_DIR"):
        return (Path(environ["GPUMON_PROBE_DIR"]),)
    found = [
        *([Path(environ["XDG_RUNTIME_DIR"], "gpumon")] if environ.get("XDG_RUNTIME_DIR") else []),
        Path(f"/run/user/{uid}/gpumon"),
        Path(f"/tmp/gpumon-{uid}"),  # noqa: S108 - it is checked to be one's own
    ]
    return tuple(dict.fromkeys(found))


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder that was found good: what is done through it is done in that very folder.

    Raises:
        FileNotFoundError: It is not there.
        FolderError: It is not to be trusted, or cannot be read.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise FolderError(folder, "it is no folder, or a link to one") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise FolderError(folder, safe_text(getattr(error, "strerror", None) or str(error), 100)) from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise FolderError(folder, "it belongs to another user")
        if found.st_mode & 0o077:
            raise FolderError(folder, "it is open to other users")
        yield descriptor
    finally:
        os.close(descriptor)


def socket_names(descriptor: int) -> list[str]:
    """What is called as a probe's socket is, in an opened folder; a folder may hold anything, so not all is read."""
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in islice(entries, _MOST_ENTRIES) if _NAME.fullmatch(entry.name))


def connect(descriptor: int, name: str) -> socket.socket:
    """Connects to a socket in an opened folder, without waiting and whatever the length of its path.

    Raises:
        ConnectionRefusedError: Nobody listens there any more; the name is removed.
        BlockingIOError: So many wait to be let in that one more cannot.
        OSError: It is gone or no socket, or there are too many open files.
    """
    if not stat.S_ISSOCK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
        raise OSError(f"{name} is no socket")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    except ConnectionRefusedError:
        connection.close()
        with suppress(OSError):  # another one was faster
            os.unlink(name, dir_fd=descriptor)
        raise
    except OSError:
        connection.close()
        raise
    return connection


def peer_of(connection: socket.socket) -> Peer:
    """Who listens at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)
