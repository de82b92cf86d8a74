"""Export of a recording as a table: one row per GPU and sample, one column per metric, for spreadsheets and scripts.

The table is written while the recording is read, so that its size does not matter. A value that was not measured is an
empty cell.
"""

import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, TextIO

from gpumon.core.json_text import json_line
from gpumon.core.metrics import METRICS, similar_names
from gpumon.core.model import HOST_RATES, Device, Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.source_file import STANDARD_INPUT
from gpumon.core.text import safe_text
from gpumon.core.units import StartTime, parse_start_time
from gpumon.operations.csv_table import CsvRow, write_table
from gpumon.streams.base import Stream
from gpumon.streams.lines import Record
from gpumon.streams.recording import RecordingReader
from gpumon.streams.replay import ReplayStream, open_replay
from gpumon.streams.ring import RingReader, open_recording

_SCHEMA: Final = 1
_SCAN_ALL_BYTES: Final = 1 << 62
_COLUMNS: Final = (*METRICS, *HOST_RATES)
"""Metrics of a device, and rates of its host, which are the same for all devices of a frame."""
_UNKNOWN_END: Final = Problem(
    ProblemCode.NOT_SUPPORTED,
    "--since needs a file here: the end of a pipe is not known in advance.",
    "Write the frames to a file first.",
)
_NOT_MEASURED: Final = Problem(ProblemCode.UNRESPONSIVE, "Not measured at this time.")


def parse_since(text: str | None) -> StartTime | None:
    """Parse the value of ``--since``.

    Raises:
        CommandError: The text is neither a duration nor a time.
    """
    try:
        return None if text is None else parse_start_time(text)
    except ValueError as error:
        raise CommandError.usage(ProblemCode.INVALID_VALUE, str(error)) from None


def parse_metrics(names: str | None) -> list[str]:
    """Parse a comma-separated list of names of metrics and host rates; None or an empty list selects all of them.

    Raises:
        CommandError: A metric does not exist; the remedy lists the closest names.
    """
    if names is None:
        return list(_COLUMNS)
    chosen = [name for name in (part.strip() for part in names.split(",")) if name]
    for name in chosen:
        if name not in _COLUMNS:
            matches = similar_names(name, _COLUMNS)
            remedy = f"Did you mean {', '.join(matches)}?" if matches else f"Metrics: {', '.join(_COLUMNS)}."
            raise CommandError.usage(ProblemCode.NOT_FOUND, f"There is no metric {safe_text(name, 60)}.", remedy)
    return list(dict.fromkeys(chosen)) or list(_COLUMNS)


def export(file: Path, metrics: Sequence[str], start: StartTime | None, out: TextIO, *, as_json: bool) -> None:
    """Write a recording as CSV, or as one JSON line per GPU and sample.

    The file ``-`` is standard input.

    Raises:
        CommandError: The recording cannot be read.
        BrokenPipeError: The reader of ``out`` has closed the pipe.
    """
    reader = open_recording(STANDARD_INPUT if str(file) == "-" else file)
    try:
        frames = (record.frame for record in _records_from(reader, start))
        if as_json:
            for frame in frames:
                for device in frame.devices:
                    out.write(json_line(_document(frame, device, metrics)) + "\n")
        else:
            write_table(_rows(frames, metrics), metrics, out)
    finally:
        reader.close()
        if reader.problem is not None:
            print(f"gpumon: {reader.problem}", file=sys.stderr)


def open_replay_since(file: Path, speed: float, start: StartTime | None) -> Stream:
    """Open a recording for replay at ``start``, or at the end of the recording if that is earlier.

    Raises:
        CommandError: The file cannot be read, or a start was given for a stream that cannot seek.
    """
    if start is None:
        return open_replay(file, speed)
    if str(file) == "-":
        raise CommandError(_UNKNOWN_END, ExitCode.USAGE)
    seconds = _start_seconds(file, start)
    stream = ReplayStream(file, speed)
    stream.seek(seconds)
    return stream


def _start_seconds(file: Path, start: StartTime) -> float:
    """The start as seconds since the first frame of a recording."""
    reader = open_recording(file)
    try:
        if start.last_seconds is not None:
            return max(0.0, _length_seconds(reader) - start.last_seconds)
        if isinstance(reader, RingReader):
            return reader.seconds_at(start.time_seconds or 0.0)
        first = next((record.seconds for record in _records_from(reader, start)), None)
        return _length_seconds(reader) if first is None else first
    finally:
        reader.close()


def _records_from(reader: RecordingReader | RingReader, start: StartTime | None) -> Iterator[Record]:
    """The records at and after ``start``."""
    if start is None:
        return iter(reader)
    if isinstance(reader, RingReader):
        is_time = start.last_seconds is None
        last = 0.0 if start.last_seconds is None else _length_seconds(reader) - start.last_seconds
        return reader.window(reader.seconds_at(start.time_seconds or 0.0) if is_time else last, inf, 0.0, lambda: False)
    if start.last_seconds is None:
        time_seconds = start.time_seconds or 0.0
        return (record for record in reader if record.frame.time_seconds >= time_seconds)
    first = max(0.0, _length_seconds(reader) - start.last_seconds)
    return (record for record in reader if record.seconds >= first)


def _length_seconds(reader: RecordingReader | RingReader) -> float:
    """Seconds from the first frame to the last frame; a pipe, whose end is not known, is refused."""
    if not reader.seekable:
        raise CommandError(_UNKNOWN_END, ExitCode.USAGE)
    reader.scan(lambda: False, _SCAN_ALL_BYTES)
    return reader.duration_seconds or 0.0


def _rows(frames: Iterator[Frame], metrics: Sequence[str]) -> Iterator[CsvRow]:
    for frame in frames:
        for device in frame.devices:
            values = [_value(frame, device, metric) for metric in metrics]
            yield CsvRow(frame.time_seconds, device.index, device.uuid, values)


def _value(frame: Frame, device: Device, metric: str) -> float | None:
    """The value of a column; None if it was not measured in this frame."""
    if metric in HOST_RATES:
        rate: float | None = getattr(frame.host, metric)
        return rate
    return device.get(metric) if frame.is_fresh(device) else None


def _document(frame: Frame, device: Device, metrics: Sequence[str]) -> dict[str, Any]:
    """One GPU in one frame, with the reason for every missing value."""
    values = {metric: _value(frame, device, metric) for metric in metrics}
    problems = {
        metric: (
            frame.host.problems.get(metric)
            if metric in HOST_RATES
            else device.problems.get(metric) or device.problems.get("state")
        )
        or _NOT_MEASURED
        for metric, value in values.items()
        if value is None
    }
    return {
        "schema": _SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "index": device.index,
        "uuid": device.uuid,
        **values,
        "problems": {
            metric: {"code": problem.code.value, "reason": problem.reason} for metric, problem in problems.items()
        },
    }
