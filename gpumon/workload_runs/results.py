"""Results of past runs: one JSON line each in a file in the user's state folder.

The folder may be on a network file system and the file may be locked or be no file at all: nothing here waits without
a deadline, and `SavingResult` keeps even a call that the kernel never returns from away from the caller.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpumon.core.json_fields import object_in
from gpumon.core.json_text import json_bytes
from gpumon.core.ownership import root_ownership_problem
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.state_file import lock_file, open_regular, state_file
from gpumon.core.workload_metrics import Measurement
from gpumon.workload_runs.protocol import VerdictKind, safe_json

SCHEMA: Final = 1
GOOD_VERDICTS: Final = frozenset({VerdictKind.OK.value, VerdictKind.WARN.value})
"""Verdicts of results that later ones are compared with."""
_TAIL_BYTES: Final = 1 << 20
"""Size of the end of the file that is searched for an earlier result: some thousand results."""
_HISTORY_BYTES: Final = 16 << 20
"""Size of the end of the file that is read for a history."""
_MAX_LINE_BYTES: Final = 1 << 20
"""A longer line was not written by gpumon: a result is an event of at most 256 KiB."""
_LOCK_SECONDS: Final = 3.0
_SAVE_SECONDS: Final = 4.0
"""The longest time that a result takes to be saved: a lock, and a slow disk."""
_REMEDY: Final = "Free some space there, or set XDG_STATE_HOME to a folder that you can write."
_OWNER_REMEDY: Final = "Set XDG_STATE_HOME to a folder that belongs to you."
_LOCK_REMEDY: Final = "End the process that locks the file, or set XDG_STATE_HOME to another folder."


def results_file() -> Path:
    """Path of the file with the results."""
    return state_file("results.jsonl")


class SavingResult:
    """A result that a thread compares with the previous one and saves.

    Args:
        record: The result.
        is_kept: Whether to save it; otherwise it is only compared.
        ring: Called from another thread at the end.

    Attributes:
        previous: The previous result with the same workload, device and parameters, or None.
        problem: Why the result could not be saved; None if it was.
        is_over: Whether both attributes are final.
    """

    def __init__(self, record: Mapping[str, Any], *, is_kept: bool, ring: Callable[[], None]) -> None:
        self.previous: dict[str, Any] | None = None
        self.problem: Problem | None = None
        self.is_over = False
        self._record = record
        self._is_kept = is_kept
        self._ring = ring
        self._saved: list[tuple[dict[str, Any] | None, Problem | None]] = []

    def start(self) -> None:
        """Start the threads."""
        worker = threading.Thread(target=self._save, name="gpumon-save", daemon=True)
        try:
            worker.start()
            threading.Thread(target=self._wait, args=(worker,), name="gpumon-save-wait", daemon=True).start()
        except RuntimeError as error:  # the system cannot start another thread
            self.problem = _not_saved(results_file(), str(error), _REMEDY)
            self.is_over = True

    def _save(self) -> None:
        try:
            previous = last_similar(self._record)
            self._saved.append((previous, save_result(self._record) if self._is_kept else None))
        except RuntimeError:
            reason = "The result could not be saved: this user has no home folder."
            self._saved.append((None, Problem(ProblemCode.NOT_WRITTEN, reason, _OWNER_REMEDY)))

    def _wait(self, worker: threading.Thread) -> None:
        worker.join(_SAVE_SECONDS)
        if self._saved:
            self.previous, self.problem = self._saved[0]
        elif self._is_kept:
            reason = f"the file system did not respond within {_SAVE_SECONDS:g} s"
            self.problem = _not_saved(results_file(), reason, _REMEDY)
        self.is_over = True
        self._ring()


def save_result(record: Mapping[str, Any], path: Path | None = None) -> Problem | None:
    """Append a result; returns a problem if the result could not be saved, which does not affect the run."""
    file = path or results_file()
    line = json_bytes({"schema": SCHEMA, **record})
    refusal = root_ownership_problem(file.absolute())
    if refusal is not None:
        return _not_saved(file, refusal.reason.rstrip("."), _OWNER_REMEDY)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = open_regular(file, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            lock_file(descriptor, _LOCK_SECONDS)
            _append_line(descriptor, line)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        return _not_saved(file, f"another process has locked it for {_LOCK_SECONDS:g} s", _LOCK_REMEDY)
    except OSError as error:
        return _not_saved(file, error.strerror or str(error), _REMEDY)
    return None


def _not_saved(file: Path, reason: str, remedy: str) -> Problem:
    return Problem(ProblemCode.NOT_WRITTEN, f"The result could not be saved to {file}: {reason}.", remedy)


def _append_line(descriptor: int, line: bytes) -> None:
    """Append a line completely or not at all: a partial line would corrupt the next one."""
    end = os.fstat(descriptor).st_size
    if end and os.pread(descriptor, 1, end - 1) != b"\n":
        line = b"\n" + line  # the host crashed while the last line was written
    failure = None
    try:
        written = os.write(descriptor, line)
    except OSError as error:
        written, failure = 0, error
    if written != len(line):
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise failure or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_similar(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The newest saved result with the same workload, device and parameters, or None."""
    return next((result for result in recent_results() if is_comparable(result, record)), None)


def is_comparable(earlier: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a saved result is a measure for another one: the same workload, device, parameters and host.

    Results that were saved by earlier versions have no host, and may be compared with those of any host.
    """
    keys = ("workload", "uuid", "device_name", "parameters")
    is_same_host = record.get("host") is None or earlier.get("host") in {None, record["host"]}
    is_same = is_same_host and all(earlier.get(name) == record.get(name) for name in keys)
    return is_same and earlier.get("verdict") in GOOD_VERDICTS


def recent_results(path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the newest saved results, from the last MiB of the file, newest first; invalid lines are skipped."""
    return _results(path or results_file(), _TAIL_BYTES)


def saved_results(path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield saved results, from the last 16 MiB of the file, newest first; invalid lines are skipped."""
    return _results(path or results_file(), _HISTORY_BYTES)


def _results(path: Path, max_bytes: int) -> Iterator[dict[str, Any]]:
    for line in reversed(_tail(path, max_bytes)):
        if len(line) > _MAX_LINE_BYTES:
            continue
        raw = object_in(line)
        if raw is not None and raw.get("schema") == SCHEMA and isinstance(raw.get("figures"), list):
            safe: dict[str, Any] = safe_json(raw)
            yield {**safe, "figures": [figure for figure in safe["figures"] if Measurement.of(figure) is not None]}


def _tail(path: Path, max_bytes: int) -> list[bytes]:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as results:
            size = results.seek(0, os.SEEK_END)
            results.seek(max(0, size - max_bytes))
            lines = results.read(max_bytes).split(b"\n")
            return lines[1:] if size > max_bytes else lines
    except OSError:
        return []
