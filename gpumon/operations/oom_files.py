"""The files that probes of this user have written on running out of memory."""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.json_fields import as_count, as_object, as_text, required
from gpumon.core.oom_file import OomFileName, parse_oom_name
from gpumon.core.problems import CommandError
from gpumon.errors.source import log_pieces, open_log
from gpumon.probe.socket_dir import candidates
from gpumon.workload_runs.results import results_file

_MAX_BEGINNING: Final = 1 << 16
_DEVICE: Final = re.compile(rb'"device"\s*:\s*(\{[^{}]*\})')


def oom_files() -> list[Path]:
    """The user's regular files in the folders that probes write to, oldest first."""
    names = {path: name for folder in _folders() for path, name in _files(folder)}
    return sorted(names, key=lambda path: names[path].age_key)


class OomDevice(NamedTuple):
    """Which device had no more memory, as the process sees it.

    Attributes:
        ordinal: CUDA ordinal in the process.
        uuid: Its UUID, which an old PyTorch does not report.
    """

    ordinal: int
    uuid: str | None


def oom_device(path: str) -> OomDevice | None:
    """The device that a file is about, from its first kilobytes; None if the file does not say or cannot be read."""
    try:
        with open_log(Path(path)) as opened:
            beginning = b""
            for piece in log_pieces(opened, path):
                beginning += piece[:_MAX_BEGINNING]
                if len(beginning) >= _MAX_BEGINNING:
                    break
        match = _DEVICE.search(beginning)
        device = as_object(json.loads(match[1])) if match is not None else {}
        return OomDevice(required(as_count(device["ordinal"])), as_text(device.get("uuid")))
    except (CommandError, KeyError, TypeError, ValueError):
        return None


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
