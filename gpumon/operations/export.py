"""A recording as a table: a line a GPU and moment, its metrics in columns, for spreadsheets and scripts.

It is written as it is read, so that its size does not matter, and a value that was not measured stays empty.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TextIO

from gpumon.core.durations import Since, since
from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.operations.table import Moment, write_table
from gpumon.streams.base import Stream
from gpumon.streams.lines import Record
from gpumon.streams.recording import RecordingReader
from gpumon.streams.replay import ReplayStream, open_replay

STANDARD_INPUT: Final = Path("/dev/stdin")
_SCHEMA: Final = 1
_EVERYTHING: Final = 1 << 62
_NO_END: Final = Problem(
    ProblemCode.NOT_SUPPORTED,
    "The end of a pipe is not known beforehand, so it cannot begin so long before it.",
    "Read from a file instead.",
)
_NOT_OF_THE_MOMENT: Final = Problem(ProblemCode.UNRESPONSIVE, "It was not measured at this moment.")


def begin_of(text: str | None) -> Since | None:
    """Where to begin, from what the user has typed.

    Raises:
        CommandError: It is no duration and no time.
    """
    try:
        return None if text is None else since(text)
    except ValueError as error:
        raise CommandError(Problem(ProblemCode.INVALID_VALUE, str(error)), ExitCode.USAGE) from None


def chosen_metrics(names: str | None) -> list[str]:
    """The metrics in a list parted by commas; all of them if there is none.

    Raises:
        CommandError: There is no such metric; the nearest names are told.
    """
    if names is None:
        return list(METRICS)
    chosen = [name for name in (each.strip() for each in names.split(",")) if name]
    for name in chosen:
        if name not in METRICS:
            near = get_close_matches(name, METRICS, n=4, cutoff=0.5)
            remedy = f"Near it are: {', '.join(near)}." if near else f"There are: {', '.join(METRICS)}."
            problem = Problem(ProblemCode.NOT_FOUND, f"There is no metric {safe_text(name, 60)}.", remedy)
            raise CommandError(problem, ExitCode.USAGE)
    return list(dict.fromkeys(chosen)) or list(METRICS)


def export(file: Path, metrics: Sequence[str], begin: Since | None, out: TextIO, *, as_json: bool) -> None:
    """Writes a recording as CSV, or as a line of JSON a GPU and moment.

    Args:
        file: The recording; ``-`` is standard input.
        metrics: The columns.
        begin: Where to begin, or None for all of it.
        out: Where to.
        as_json: Whether to write JSON.

    Raises:
        CommandError: The recording cannot be read.
        BrokenPipeError: Whoever reads is gone.
    """
    reader = RecordingReader(STANDARD_INPUT if str(file) == "-" else file)
    try:
        frames = (record.frame for record in _from(reader, begin))
        if as_json:
            _write_json(frames, metrics, out)
        else:
            write_table(_moments(frames, metrics), metrics, out)
    finally:
        reader.close()
        if reader.problem is not None:
            print(f"gpumon: {reader.problem}", file=sys.stderr)


def open_replay_since(file: Path, speed: float, begin: Since | None) -> Stream:
    """The stream of a recording that begins there, or at the recording's end if that is earlier.

    Raises:
        CommandError: There is nothing to read, or a begin was asked for of what cannot be moved in.
    """
    if begin is None:
        return open_replay(file, speed)
    if str(file) == "-":
        raise CommandError(_NO_END, ExitCode.USAGE)
    start = _start_seconds(file, begin)
    stream = ReplayStream(file, speed)
    stream.seek(start)
    return stream


def _start_seconds(file: Path, begin: Since) -> float:
    """Where in a recording (seconds since its first frame) to begin."""
    reader = RecordingReader(file)
    try:
        if begin.last_seconds is not None:
            return max(0.0, _length(reader) - begin.last_seconds)
        first = next((record.seconds for record in _from(reader, begin)), None)
        return _length(reader) if first is None else first
    finally:
        reader.close()


def _from(reader: RecordingReader, begin: Since | None) -> Iterator[Record]:
    """The records from a begin on."""
    if begin is None:
        return iter(reader)
    if begin.last_seconds is None:
        wanted = begin.time_seconds or 0.0
        return (record for record in reader if record.frame.time_seconds >= wanted)
    first = max(0.0, _length(reader) - begin.last_seconds)
    return (record for record in reader if record.seconds >= first)


def _length(reader: RecordingReader) -> float:
    """Seconds from the first frame to the last one; where that cannot be known beforehand, it cannot be asked for."""
    if not reader.seekable:
        raise CommandError(_NO_END, ExitCode.USAGE)
    reader.scan(lambda: False, _EVERYTHING)
    return reader.duration_seconds or 0.0


def _moments(frames: Iterator[Frame], metrics: Sequence[str]) -> Iterator[Moment]:
    for frame in frames:
        for device in frame.devices:
            readings = device.readings if frame.is_fresh(device) else {}
            yield Moment(frame.time_seconds, device.index, device.uuid, [readings.get(metric) for metric in metrics])


def _write_json(frames: Iterator[Frame], metrics: Sequence[str], out: TextIO) -> None:
    for frame in frames:
        for device in frame.devices:
            out.write(json.dumps(_document(frame, device, metrics), ensure_ascii=False, separators=(",", ":")) + "\n")


def _document(frame: Frame, device: Device, metrics: Sequence[str]) -> dict[str, Any]:
    """A GPU at a moment, with the reason beside each value that is missing."""
    is_fresh = frame.is_fresh(device)
    values = {metric: device.get(metric) if is_fresh else None for metric in metrics}
    reasons = {
        metric: device.problems.get(metric) or device.problems.get("state") or _NOT_OF_THE_MOMENT
        for metric, value in values.items()
        if value is None
    }
    return {
        "schema": _SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "index": device.index,
        "uuid": device.uuid,
        **values,
        "problems": {metric: {"code": each.code.value, "reason": each.reason} for metric, each in reasons.items()},
    }
