"""New files and folders in places where other users may change paths while gpumon, possibly as root, writes.

A path is followed once, when a folder is opened. Everything after that is relative to the descriptor of the folder,
follows no symbolic link, and changes owner and mode of a descriptor, never of a path. This is the only module of gpumon
that gives a file to another user.
"""

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from gpumon.core.ownership import replaceable_part

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SHARED_FOLDER: Final = Path("/tmp")  # noqa: S108 - used only if it passes `replaceable_part`


class PrivateDir:
    """A folder with mode 0700, locked until `unlock` or `close`, through which gpumon and a process exchange files.

    Args:
        path: The folder, which belongs to the user of gpumon.

    Attributes:
        path: For the other process, and for messages; only `remove` follows it again, for an empty folder.
        descriptor: The open folder.

    Raises:
        OSError: The folder cannot be opened, is locked, or is not a private folder of this user.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, _OPEN_FOLDER | os.O_NOFOLLOW)
        try:
            _check_private(self.descriptor)
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self.descriptor)
            raise

    @classmethod
    def create(cls, path: Path) -> "PrivateDir":
        """Create the folder ``path``.

        Raises:
            OSError: It exists or cannot be created, or another user replaced it in the meantime.
        """
        path.mkdir(mode=0o700)
        return cls(path)

    @classmethod
    def create_temporary(cls, prefix: str) -> "PrivateDir":
        """Create a folder with a random name in `temporary_folder`.

        Raises:
            OSError: It cannot be created, or there is no suitable temporary folder.
        """
        return cls(Path(tempfile.mkdtemp(prefix=prefix, dir=temporary_folder())))

    def write(self, name: str, content: bytes, uid: int | None = None) -> Path:
        """Write a new file with mode 0600, and give it to a user; returns its path.

        Args:
            name: Name of the file, which must not exist.
            content: Its content.
            uid: The user that owns it afterwards, or None for the user of gpumon; only root can give a file away.

        Raises:
            OSError: The file exists, cannot be written completely, or cannot be given to the user.
        """
        with _new_file(self.descriptor, name, 0o600) as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o600)  # the umask may deny access even to the owner
            if uid is not None:
                os.fchown(file.fileno(), uid, -1)
        return self.path / name

    def read(self, name: str, max_bytes: int) -> bytes:
        """The start of a file that the other process wrote; nothing is waited for, and no link is followed.

        Raises:
            OSError: There is no such file, or it is not a regular file.
        """
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            _check_regular(descriptor)
            return os.read(descriptor, max_bytes)
        finally:
            os.close(descriptor)

    def give(self, uid: int) -> None:
        """Give the folder itself to a user; only root can do this for another one.

        Raises:
            OSError: This process may not change the owner.
        """
        os.fchown(self.descriptor, uid, -1)

    def unlock(self) -> None:
        """Release the lock; the folder stays open."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def remove(self) -> None:
        """Remove the files and the folder, as far as possible; a folder that is at its path by now must be empty."""
        with suppress(OSError):
            for name in os.listdir(self.descriptor):  # noqa: PTH208 - pathlib has no folders by descriptor
                os.unlink(name, dir_fd=self.descriptor)
            self.path.rmdir()

    def close(self) -> None:
        """Close the folder, which releases the lock."""
        os.close(self.descriptor)


def share_folder(descriptor: int, group_id: int) -> None:
    """Let the members of a group read an open folder, and the files that are created in it."""
    os.fchown(descriptor, -1, group_id)
    os.fchmod(descriptor, 0o2750)


def temporary_folder() -> Path:
    """TMPDIR, or /tmp if another user could replace a folder that is created in TMPDIR.

    Raises:
        OSError: That is also the case for /tmp, or neither exists.
    """
    part = None
    for folder in (Path(tempfile.gettempdir()).absolute(), _SHARED_FOLDER):
        part = replaceable_part(folder)
        if part is None:
            return folder
    raise PermissionError(errno.EPERM, f"other users can replace files in {part}")


@contextmanager
def new_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Create a file and write it completely, or leave no file.

    Args:
        path: The file, which must not exist, not even as a link.
        mode: Its permissions; the umask is subtracted.

    Raises:
        FileExistsError: There is something at that path.
        OSError: The file cannot be written.
    """
    folder = os.open(path.parent, _OPEN_FOLDER)
    try:
        with _new_file(folder, path.name, mode) as file:
            yield file
    finally:
        os.close(folder)


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step: a reader finds the complete old or the complete new content.

    Args:
        path: The file; a link at that path is replaced, not followed.
        content: The new content.
        mode: Its permissions; the umask is subtracted.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    draft = f".{path.name}.{secrets.token_hex(8)}"
    folder = os.open(path.parent, _OPEN_FOLDER)
    try:
        with _new_file(folder, draft, mode) as file:
            file.write(content)
            file.flush()
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _new_file(folder: int, name: str, mode: int) -> Iterator[BinaryIO]:
    """Create a file in an open folder, and remove it unless everything that is done with it succeeds."""
    descriptor = os.open(name, _CREATE, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _check_regular(descriptor)
            yield file
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _check_private(descriptor: int) -> None:
    """Check that a folder belongs to this user and is closed to all others."""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "another user replaced the folder")


def _check_regular(descriptor: int) -> None:
    """Check that a descriptor is a regular file with one name: a second one would be a file of another folder."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise OSError(errno.EINVAL, "it is not a regular file with one name")
