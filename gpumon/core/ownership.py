"""Who controls a file that can make gpumon run code: a configuration file, a workload, or a Python interpreter."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_ROOT_UID: Final = 0
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS: Final = 40
"""The limit of Linux on symbolic links in one path."""
_UID_MAP: Final = Path("/proc/self/uid_map")
_ALL_UIDS: Final = 0xFFFF_FFFF
_REMEDY: Final = "Run gpumon as the owner, or use a copy that belongs to you."


def ownership_problem(file: Path) -> Problem | None:
    """Return why gpumon does not use a file; None if it may, or if there is no such file.

    The file must belong to root or to the user of gpumon. For root, so must every folder and every link on the way to
    it, and no user but the owner may replace any of them: a virtual environment of another user links to Python of the
    system, but chooses what that Python imports.

    Args:
        file: An absolute path.
    """
    trusted = _trusted_uids()
    reason = ""
    with suppress(OSError):
        if os.geteuid() != _ROOT_UID:
            reason = _reason("The file", file.stat(), trusted)
        else:
            reason = next(filter(None, (_reason(_subject(*step), step[1], trusted) for step in _steps(file))), "")
    return Problem(ProblemCode.NO_PERMISSION, reason, _REMEDY) if reason else None


def root_ownership_problem(file: Path) -> Problem | None:
    """Return why root does not use a file; always None for other users, whose shell uses such a file in any case.

    Args:
        file: An absolute path.
    """
    return ownership_problem(file) if os.geteuid() == _ROOT_UID else None


def replaceable_part(folder: Path) -> Path | None:
    """The part of a path at which another user could replace what gpumon creates in a folder; None if there is none.

    Unlike a file that only root reads, a folder that any member of a group can write does not pass either.

    Args:
        folder: An absolute path.

    Raises:
        OSError: The folder does not exist or cannot be read.
    """
    trusted = _trusted_uids()
    return next((path for path, status in _steps(folder) if _is_replaceable(status, trusted)), None)


def _is_replaceable(status: os.stat_result, trusted: set[int]) -> bool:
    is_writable = status.st_mode & _WRITABLE_BY_OTHERS and not status.st_mode & stat.S_ISVTX
    return status.st_uid not in trusted or (bool(is_writable) and not stat.S_ISLNK(status.st_mode))


def _subject(path: Path, status: os.stat_result) -> str:
    shown = safe_text(str(path), 200)
    if stat.S_ISDIR(status.st_mode):
        return f"The folder {shown}"
    return f"The link {shown}" if stat.S_ISLNK(status.st_mode) else "The file"


def _reason(subject: str, status: os.stat_result, trusted: set[int]) -> str:
    if status.st_uid not in trusted:
        return f"{subject} belongs to another user (UID {status.st_uid})."
    is_writable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if is_writable and not stat.S_ISLNK(status.st_mode):  # the mode of a link has no meaning
        return f"{subject} can be written by every user."
    return ""


def _steps(file: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder, link and file that the kernel visits to open a file.

    Raises:
        OSError: A part of the path does not exist or cannot be read.
    """
    current, links = Path("/"), 0
    todo = list(reversed(file.parts[1:]))
    yield current, current.lstat()
    while todo:
        name = todo.pop()
        if name == "..":
            current = current.parent
            continue
        path = current / name
        status = path.lstat()
        yield path, status
        if not stat.S_ISLNK(status.st_mode):
            current = path
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = path.readlink()
        if target.is_absolute():
            current = Path("/")
        todo += reversed([part for part in target.parts if part != "/"])


def _trusted_uids() -> set[int]:
    """Root and the user of gpumon; in a user namespace, also the UID that stands for all users outside it."""
    trusted = {_ROOT_UID, os.geteuid()}
    with suppress(OSError, ValueError, IndexError):
        if int(_UID_MAP.read_text().split()[2]) != _ALL_UIDS:
            trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return trusted
