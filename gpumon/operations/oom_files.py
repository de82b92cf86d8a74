"""The files that probes of this user have written on running out of memory."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpumon.core.oom_file import OomFileName, parse_oom_name
from gpumon.jobs.results import results_file
from gpumon.probe.socket_dir import candidates


def oom_files() -> list[Path]:
    """The user's regular files in the folders that probes write to, oldest first."""
    names = {path: name for folder in _folders() for path, name in _files(folder)}
    return sorted(names, key=lambda path: names[path].age_key)


def _folders() -> Iterator[Path]:
    """The folders that a probe writes to: in the user's state folder, or next to its socket."""
    with suppress(RuntimeError):  # a user may have no home
        yield results_file().parent / "oom"
    yield from (folder / "oom" for folder in candidates())


def _files(folder: Path) -> Iterator[tuple[Path, OomFileName]]:
    """The user's files in a folder, if the user owns the folder."""
    try:
        if folder.stat().st_uid != os.getuid():
            return  # its owner may change its content at any time
        with os.scandir(folder) as entries:
            for entry in entries:
                name = parse_oom_name(entry.name)
                if name is not None and _is_own_file(entry.stat(follow_symlinks=False)):
                    yield Path(entry.path), name
    except (OSError, ValueError):  # the folder is missing or unreadable, or its name is not valid
        return


def _is_own_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
