"""What a report is made from: the folder of a run, with frames of its host and a journal of its ranks; a recording."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

from gpumon.core.json_text import json_bytes
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.source_file import open_input
from gpumon.core.text import safe_text
from gpumon.errors.explain import explain_paths
from gpumon.operations.program_name import program_name
from gpumon.operations.recorder.events import ended_processes
from gpumon.operations.run_report.document import report_document
from gpumon.operations.run_report.run_data import RunData
from gpumon.streams.recording import RecordingReader
from gpumon.streams.ring import TIERS, RingReader

FRAMES: Final = "frames.jsonl.gz"
JOURNAL: Final = "journal.jsonl"
REPORT: Final = "report.json"
OUTPUT: Final = "output.log"
_MAX_LINE_BYTES: Final = 1 << 20
_MAX_REPORT_BYTES: Final = 64 << 20
_LONG_BYTES: Final = 64 << 20
_LONG_STEP_SECONDS: Final = 10.0
"""Of a recording of many hours, a frame of each ten seconds is read."""
_MAX_RING_FRAMES: Final = 2000
"""Of a longer time, merged frames are read."""
_NEEDED: Final = frozenset(
    {"totals", "steps", "ranks", "gpus", "host", "versions", "environment", "accounts", "events"}
)


class JournalWriter:
    """Appends lines to a journal; a line is complete in the file, or not there at all.

    Raises:
        OSError: It cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._complete_bytes = 0

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line.

        Raises:
            OSError: The disk is full; the journal ends with the line before.
        """
        data = json_bytes(line)
        written = self._file.write(data)
        if written != len(data):
            self._file.truncate(self._complete_bytes)
            raise OSError(28, "No space left on device")
        self._complete_bytes += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def load_report(path: Path) -> dict[str, Any]:
    """The report of a recording, of the folder of a run, or a report that was written before.

    Raises:
        CommandError: The path is none of these, or cannot be read.
    """
    name = safe_text(str(path), 200)
    if path.is_dir():
        if not any((path / part).exists() for part in (FRAMES, JOURNAL)):
            reason = f"{name} has neither {FRAMES} nor {JOURNAL} of a run, and no recording of gpumon recorder."
            raise CommandError.missing(ProblemCode.NOT_FOUND, reason, "gpumon watch --report DIR -- COMMAND writes it.")
        data = read_run(path / FRAMES, path / JOURNAL)
        if data.end.get("status") != 0 and not data.end.get("explanation"):
            data.explanation = explain_output(path / OUTPUT)
        return report_document(data)
    if not path.exists():
        raise CommandError.missing(ProblemCode.NOT_FOUND, f"File not found: {name}.", "")
    if (document := _saved_report(path, name)) is not None:
        return document
    return report_document(read_run(path, None))


def explain_output(path: Path) -> dict[str, Any] | None:
    """Why a program failed, by its output; None if the output shows no failure, or cannot be read."""
    if not path.exists():
        return None
    try:
        explanation = explain_paths([path])
    except CommandError:
        return None
    if not explanation.is_failure:
        return None
    answer = explanation.answer
    return {
        "headline": answer.headline.removeprefix(f"{path.name}: "),
        "because": answer.because,
        "do": answer.do.text if answer.do else "",
    }


def _saved_report(path: Path, name: str) -> dict[str, Any] | None:
    """The document in a file; None if the file is something else, such as a recording."""
    try:
        with io.BufferedReader(open_input(path)) as file:
            if file.read(1) != b"{":
                return None
            text = b"{" + file.read(_MAX_REPORT_BYTES)
    except OSError as error:
        raise CommandError(_unreadable(path, error), ExitCode.USAGE) from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("kind") != "gpumon_report":
        return None
    if document.get("schema") != 1:
        reason = f"{name} has the schema {safe_text(str(document.get('schema')), 20)}; this gpumon reads schema 1."
        raise CommandError.usage(ProblemCode.NEWER_SCHEMA, reason, "Read it with the gpumon that wrote it.")
    if missing := _NEEDED - document.keys():
        reason = f"{name} is damaged: it lacks {', '.join(sorted(missing))}."
        raise CommandError.usage(ProblemCode.DAMAGED, reason, "Write it again from the folder of the run.")
    return document


def read_run(frames: Path, journal: Path | None) -> RunData:
    """Read a run; what is missing or damaged is a note of it, and the rest is read.

    Raises:
        CommandError: There is no journal, and the recording cannot be read.
    """
    data = RunData()
    has_journal = journal is not None and journal.exists()
    if journal is not None and has_journal:
        damaged = 0
        for line in _lines(journal):
            try:
                data.add_sample(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                damaged += 1
        if damaged:
            data.notes.append(f"{damaged} damaged lines of the journal were left out.")
    try:
        reader = RecordingReader(frames)
    except CommandError as error:
        if not has_journal:
            raise
        data.notes.append(f"Without GPUs: {error.problem.reason}")
        return data
    try:
        is_long = reader.seekable and frames.stat().st_size > _LONG_BYTES
        for record in reader.window(0.0, inf, _LONG_STEP_SECONDS, lambda: False) if is_long else reader:
            data.add_frame(record.frame)
        if reader.problem is not None:
            data.notes.append(reader.problem.reason)
    finally:
        reader.close()
    return data


def read_ring(folder: Path, since: float, until: float) -> RunData:
    """Read what the recorder has of a time: the GPUs of the host, and the programs that ended.

    Args:
        folder: The ring.
        since: Unix time of the first frame.
        until: Unix time of the last frame.

    Raises:
        CommandError: The ring cannot be read, or has no frame of that time.
    """
    data, problems, reader = RunData(), list[Problem](), RingReader(folder)
    start, end = reader.seconds_at(since), reader.seconds_at(until)
    step = next((tier for tier, _ in TIERS if end - start <= tier * _MAX_RING_FRAMES), TIERS[-1][0])
    count = 0
    for seconds, frame in reader.window(start, end, step, lambda: False):
        if since <= frame.time_seconds <= until:
            count += 1
            shift = seconds - frame.monotonic_seconds  # the clock of the host begins again when it is booted
            events = (replace(event, monotonic_seconds=event.monotonic_seconds + shift) for event in frame.events)
            data.add_frame(replace(frame, monotonic_seconds=seconds, events=tuple(events)))
    reader.close()
    if not count:
        reason = f"{reader.name} has no frame of that time."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, "Choose another --since and --until.")
    for process in ended_processes(folder, since, problems):
        if process.end_seconds <= until:
            gpus = ", ".join(f"GPU {gpu.label}" for gpu in process.gpus)
            text = f"{program_name(process.command)} of {process.user} (PID {process.pid}): {process.how}"
            data.add_event(reader.seconds_at(process.end_seconds), gpus, text)
    data.notes += [problem.reason for problem in (*problems, reader.problem) if problem is not None]
    return data


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with io.BufferedReader(open_input(path)) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                yield line
    except OSError as error:
        raise CommandError(_unreadable(path, error), ExitCode.MISSING_PREREQUISITE) from None


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(ProblemCode.NOT_READ, f"{safe_text(str(path), 200)} cannot be read: {error.strerror}.")
