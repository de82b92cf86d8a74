"""The file that explains an out-of-memory error: its contents, the folder it is written to, and how many are kept.

This module is imported at the first out-of-memory error.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import time

from .folders import make_folders, oom_folders
from .identity import MAX_TEXT_LENGTH, process_facts
from .messages import SCHEMA
from .no_collections import NoCollections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from .allocator import Allocator
    from .pytorch import Torch

_MAX_BLOCKS = 50_000
_MAX_STACK = 50
_FILE_NAME = re.compile(r"oom-\d+-\d+-\d+\.json\.gz")


def document(
    torch: Torch, allocator: Allocator, ordinal: int, request: dict[str, int], history: list[dict[str, Any]]
) -> dict[str, Any]:
    """The contents of the file.

    Args:
        torch: The PyTorch of this process.
        allocator: Its allocator.
        ordinal: The device that has run out of memory.
        request: The failed allocation: its size, and the device's limit and free memory, in bytes.
        history: Samples of the last minute, oldest first.
    """
    identity, total_bytes = torch.device_identity(ordinal)
    segments, is_cut = allocator.segments(_MAX_BLOCKS, {ordinal}) if torch.has_native_backend else ([], False)
    facts = process_facts()
    return {
        "schema": SCHEMA,
        "kind": "gpumon-oom",
        "time_seconds": time.time(),
        "process": facts,
        "torch_version": torch.version,
        "backend": torch.backend,
        "device": {"ordinal": ordinal, "total_bytes": total_bytes, **identity},
        "request": request,
        "statistics": allocator.statistics(ordinal),
        "pinned": allocator.pinned(),
        "history": history,
        "settings": facts["settings"],
        "expandable_segments": torch.expandable_segments,
        "stack": _stack(),
        "segments": segments,
        "cut": is_cut,
    }


def write(contents: dict[str, Any], number: int, max_files: int) -> list[str]:
    """Write the file into the first folder that accepts it, and remove the oldest files there.

    Args:
        contents: The document.
        number: Distinguishes the files of one process.
        max_files: How many files to keep in the folder.

    Returns:
        The path of the file; nothing if no folder accepts it.
    """
    data = gzip.compress(json.dumps(contents).encode("utf-8", "replace"), 1)
    name = f"oom-{int(time.time())}-{os.getpid()}-{number}.json.gz"
    for folder in oom_folders():
        path = os.path.join(folder, name)
        try:
            make_folders(folder)
            _write_atomically(path, data)
        except OSError:
            continue
        _remove_oldest(folder, name, max_files)
        return [path]
    return []


def _write_atomically(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.part"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def _remove_oldest(folder: str, newest: str, max_files: int) -> None:
    """Keep the newest file and those before it. Names begin with the time, but a clock may have been set back."""
    names = sorted(name for name in os.listdir(folder) if _FILE_NAME.fullmatch(name) and name != newest)
    for name in names[: 1 - max_files]:
        os.unlink(os.path.join(folder, name))


def _stack() -> list[list[Any]]:
    """The Python stack that requests the memory, innermost frame first.

    A thread of the backward pass has no Python stack; then this is the deepest stack of all threads.
    """
    own = _frames(sys._getframe())
    if own:
        return own
    with NoCollections():
        return max(map(_frames, sys._current_frames().values()), key=len, default=[])


def _frames(frame: FrameType | None) -> list[list[Any]]:
    """File, line and function of a frame and its callers, without those of the probe."""
    agent_folder = os.path.dirname(_frames.__code__.co_filename)
    frames: list[list[Any]] = []
    while frame is not None and len(frames) < _MAX_STACK:
        code = frame.f_code
        if os.path.dirname(code.co_filename) != agent_folder:
            frames.append([code.co_filename[-MAX_TEXT_LENGTH:], frame.f_lineno, code.co_name])
        frame = frame.f_back
    return frames
