"""Finds and creates the private folders that hold sockets and out-of-memory files."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def socket_folders() -> Iterator[str]:
    """The folders in which the socket may be created, best first: only GPUMON_PROBE_DIR if that variable is set."""
    named, runtime = os.environ.get("GPUMON_PROBE_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        yield named
        return
    if runtime and is_own_folder(runtime):
        yield os.path.join(runtime, "gpumon")
    yield f"/tmp/gpumon-{os.getuid()}"  # noqa: S108 - `make_private_folder` checks the owner and the mode


def oom_folders() -> Iterator[str]:
    """The folders in which an out-of-memory file may be written, best first."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    if os.path.isabs(state):
        yield os.path.join(state, "gpumon", "oom")
    for folder in socket_folders():
        if make_private_folder(folder):
            yield os.path.join(folder, "oom")


def is_own_folder(folder: str, forbidden_mode: int = 0) -> bool:
    """Check that a folder belongs to this user and is not a symbolic link.

    Args:
        folder: Its path.
        forbidden_mode: Permission bits that it must not have.
    """
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & forbidden_mode


def make_private_folder(folder: str) -> bool:
    """Create a folder if it does not exist; return whether it belongs to this user and is closed to all others."""
    with suppress(OSError):
        _make(folder)
    return is_own_folder(folder, 0o077)


def make_folders(folder: str) -> None:
    """Create a folder and its parents, each with access for its owner only, whatever the program's umask is."""
    if not os.path.isdir(folder):
        make_folders(os.path.dirname(folder))
        with suppress(FileExistsError):  # another rank created it first
            _make(folder)


def _make(folder: str) -> None:
    os.mkdir(folder, 0o700)
    set_mode(folder, 0o700)


def set_mode(path: str, mode: int) -> None:
    """Set the permissions of a folder or socket that this process created: its umask may even deny access to itself.

    Raises:
        OSError: Another user replaced it, by a link for example.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or not (stat.S_ISDIR(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            raise PermissionError("another user replaced it")
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # Linux has no fchmod for a descriptor without read access
    finally:
        os.close(descriptor)
