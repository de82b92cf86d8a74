"""Looks at what another user controls with the rights of that user: root follows a path no further than they can.

The kernel has a user for files alone, per thread (setfsuid(2)). While it is not root, root's capabilities for files do
not count; who connects to a socket is still root.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Access files as a user, in this thread.

    Raises:
        PermissionError: gpumon may not.
    """
    own = os.geteuid()
    if uid == own:
        yield
        return
    import ctypes

    library = ctypes.CDLL(None)
    try:
        library.setfsuid(uid)
        if library.setfsuid(uid) != uid:  # it returns the previous user, and no error
            raise PermissionError(errno.EPERM, f"gpumon may not access files as user {uid}")
        yield
    finally:
        library.setfsuid(own)


def open_file_of(uid: int, path: Path) -> BinaryIO:
    """Open a regular file that belongs to a user; nothing is waited for.

    Raises:
        OSError: It cannot be opened by that user, is a link, or belongs to another one.
    """
    with acting_as(uid):
        file = os.fdopen(os.open(path, _READ), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_uid == uid:
        return file
    file.close()
    raise PermissionError(errno.EPERM, "it is not a file of that user")
