"""Results of past runs: one JSON line each in a file of the user's, and the last one like a new one."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.jobs.protocol import is_figure, safe_json

SCHEMA: Final = 1
_TAIL_BYTES: Final = 1 << 20
"""As much of the file is read to find the last one: some thousand results."""


def results_file() -> Path:
    """Where results are kept."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gpumon" / "results.jsonl"


def save(record: Mapping[str, Any], path: Path | None = None) -> Problem | None:
    """Adds a result; returns what went wrong if it could not be kept. The run is not worse for that."""
    file = path or results_file()
    line = json.dumps({"schema": SCHEMA, **record}, ensure_ascii=False).encode() + b"\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("a+b", buffering=0) as results:
            fcntl.flock(results, fcntl.LOCK_EX)
            _append_whole(results.fileno(), line)
    except OSError as error:
        return Problem(
            ProblemCode.NOT_WRITTEN,
            f"The result could not be kept in {file}: {error.strerror or error}.",
            "Free some space there, or point XDG_STATE_HOME elsewhere.",
        )
    return None


def _append_whole(descriptor: int, line: bytes) -> None:
    """Adds a line, or nothing of it: half a line would spoil the next one."""
    end = os.fstat(descriptor).st_size
    if end and os.pread(descriptor, 1, end - 1) != b"\n":
        line = b"\n" + line  # the machine went down while the last one was written
    failure = None
    try:
        written = os.write(descriptor, line)
    except OSError as error:
        written, failure = 0, error
    if written != len(line):
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise failure or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_like(record: Mapping[str, Any], path: Path | None = None) -> dict[str, Any] | None:
    """The newest kept result of the same workload, device and parameters, or None."""
    alike = ("workload", "uuid", "device_name", "parameters")
    for found in recent(path):
        if all(found.get(name) == record.get(name) for name in alike) and found.get("verdict") in {"ok", "warn"}:
            return found
    return None


def recent(path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Kept results, the newest first; lines that are none are passed over."""
    for line in reversed(_tail(path or results_file())):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("schema") == SCHEMA and isinstance(found.get("figures"), list):
            safe: dict[str, Any] = safe_json(found)
            yield {**safe, "figures": [figure for figure in safe["figures"] if is_figure(figure)]}


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as results:
            size = results.seek(0, os.SEEK_END)
            results.seek(max(0, size - _TAIL_BYTES))
            lines = results.read(_TAIL_BYTES).splitlines()
            return lines[1:] if size > _TAIL_BYTES else lines
    except OSError:
        return []
