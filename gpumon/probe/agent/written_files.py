"""Where the probe writes traces and memory snapshots, how much room they need, and which old ones it removes."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from .folders import make_folders, make_private_folder, oom_folders, socket_folders
from .messages import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE_BYTES = 2 << 30
"""A larger file is removed."""
_NAME = re.compile(r"(?:trace|memory)-[0-9a-f]{8}_(\d{1,10})\.(?:json|json\.tmp|pickle)")
_CLIENT_FOLDER = re.compile(r"kineto-(\d{1,10})-[0-9a-f]{6}")
_MAX_AGE_SECONDS = 3600.0
"""gpumon removes a file as soon as it has read it; an older one was left behind."""
_MAX_AGE_WITHOUT_PROCESS_SECONDS = 60.0


def new_file(kind: str, required_bytes: int) -> str:
    """The path of a new file in a folder that only this user can access and that has room for it.

    Args:
        kind: ``trace`` or ``memory``; the caller appends the rest of the name, ``_PID`` and a suffix.
        required_bytes: How much has to be free.

    Raises:
        RefusedError: No folder has room.
    """
    free_bytes = 0
    for folder in _folders():
        remove_old_files(folder)
        free = _free_bytes(folder)
        if free >= required_bytes:
            return os.path.join(folder, f"{kind}-{os.urandom(4).hex()}")
        free_bytes = max(free_bytes, free)
    raise RefusedError(
        f"The file needs up to {required_bytes >> 20:,} MiB, and only {free_bytes >> 20:,} MiB are free."
    )


def remove(*paths: str) -> None:
    """Remove files, if they exist."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def remove_old_files(folder: str) -> None:
    """Remove what processes that have ended, or clients that have gone, have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name) or _CLIENT_FOLDER.fullmatch(entry.name)
            if match is None:
                continue
            with suppress(OSError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                is_left = age > _MAX_AGE_WITHOUT_PROCESS_SECONDS and not _is_alive(int(match[1]))
                if entry.is_dir(follow_symlinks=False):
                    if is_left:
                        remove_client_folder(entry.path)
                elif is_left or age > _MAX_AGE_SECONDS:
                    os.unlink(entry.path)


def new_client_folder(max_path_bytes: int) -> str:
    """Create a private folder for the sockets of Kineto's client and of the daemon that it asks.

    Args:
        max_path_bytes: Limit on the path: Kineto does not check it before it writes it into the address of a socket.

    Raises:
        RefusedError: No folder can be used.
    """
    for parent in _socket_parents():
        folder = os.path.join(parent, f"kineto-{os.getpid()}-{os.urandom(3).hex()}")
        if len(os.fsencode(folder)) <= max_path_bytes and make_private_folder(parent):
            remove_old_files(parent)
            if make_private_folder(folder):
                return folder
    raise RefusedError("No folder can hold the socket of Kineto's client.")


def remove_client_folder(folder: str) -> None:
    """Remove such a folder with all that is in it."""
    with suppress(OSError):
        for name in os.listdir(folder):
            remove(os.path.join(folder, name))
        os.rmdir(folder)


def _socket_parents() -> Iterator[str]:
    yield from socket_folders()
    yield f"/tmp/gpumon-{os.getuid()}"  # noqa: S108 - `make_private_folder` checks the owner and the mode


def _folders() -> Iterator[str]:
    """The folders that may hold large files, best first. XDG_RUNTIME_DIR is small and in memory."""
    named = os.environ.get("GPUMON_PROBE_DIR")
    for parent in [named] if named else [f"/tmp/gpumon-{os.getuid()}"]:  # noqa: S108 - as above
        folder = os.path.join(parent, "files")
        if make_private_folder(parent) and make_private_folder(folder):
            yield folder
    for oom_folder in oom_folders():
        folder = os.path.join(os.path.dirname(oom_folder), "files")
        with suppress(OSError):
            make_folders(folder)
            if make_private_folder(folder):
                yield folder


def _free_bytes(folder: str) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
