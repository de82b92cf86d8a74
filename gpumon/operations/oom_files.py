"""The files that probes of this user have left on running out of memory."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.jobs.results import results_file
from gpumon.probe.folder import candidates

_NAME: Final = re.compile(r"oom-(\d{1,19})-\d{1,19}-(\d{1,19})\.json\.gz", re.ASCII)


def oom_files() -> list[Path]:
    """Regular files of one's own in the folders in which probes leave them, the newest last."""
    found = {path: key for folder in _folders() for path, key in _files(folder)}
    return sorted(found, key=lambda path: found[path])


def _folders() -> Iterator[Path]:
    """Where a probe leaves its files: with the user's state, or beside its socket where that cannot be written."""
    with suppress(RuntimeError):  # a user may have no home
        yield results_file().parent / "oom"
    yield from (folder / "oom" for folder in candidates())


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Those of a folder of one's own, each with what it is sorted by: when it was left, and its number."""
    try:
        if folder.stat().st_uid != os.getuid():
            return  # whoever owns it may change what is in it at any time
        with os.scandir(folder) as entries:
            for entry in entries:
                named = _NAME.fullmatch(entry.name)
                if named is not None and _is_own_file(entry.stat(follow_symlinks=False)):
                    yield Path(entry.path), (int(named[1]), int(named[2]))
    except (OSError, ValueError):  # it is not there or may not be read; a name in the environment that is none
        return


def _is_own_file(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid()
