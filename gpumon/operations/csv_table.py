"""Tables as CSV: GPU metrics over time, and metrics of results. A cell is empty where nothing was measured."""

import csv
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from gpumon.core.model import Device, Frame
from gpumon.core.new_files import new_file
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.timeline import Summary, Timeline
from gpumon.core.units import file_stamp
from gpumon.workload_runs.results import results_file

_METRIC_COLUMNS: Final = ("case", "position", "name", "value", "unit", "repetitions", "limit", "limit_source")
FIGURE_COLUMNS: Final = ("workload", "device", *_METRIC_COLUMNS)
"""The columns of `figure_rows`."""


class CsvRow(NamedTuple):
    """One GPU at one point in time.

    Attributes:
        time_seconds: Unix time.
        gpu: NVML index of the GPU.
        uuid: Its UUID.
        values: The measured values, in the order of the table's columns.
    """

    time_seconds: float
    gpu: int
    uuid: str | None
    values: Sequence[float | None]


def write_table(rows: Iterable[CsvRow], columns: Sequence[str], out: TextIO) -> None:
    """Write a header and one line per row, as the rows arrive."""
    write_rows([("time_seconds", "index", "uuid", *columns)], out)
    write_rows(((f"{row.time_seconds:.3f}", row.gpu, row.uuid, *row.values) for row in rows), out)


def write_rows(rows: Iterable[Sequence[object]], out: TextIO) -> None:
    """Write a line for each row; None is an empty cell."""
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow(["" if value is None else value for value in row])


def figure_rows(record: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """A row for each metric of a result, in the columns of `FIGURE_COLUMNS`."""
    for metric in record["figures"]:
        yield record["workload"], record["device"], *(metric.get(name) for name in _METRIC_COLUMNS)


_MAX_NAMES: Final = 100
_DIGITS: Final = 7
"""The timeline stores 32-bit floats, which have 7 significant digits."""


class TimeRange(NamedTuple):
    """A range of chart columns, both ends included; column n starts at ``n * column_seconds`` of the frames' clock."""

    first: int
    last: int
    column_seconds: float


class Table(NamedTuple):
    """The content of a CSV file: names of the value columns, and the rows."""

    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]


def history_table(
    timeline: Timeline, metrics: Sequence[str], device: Device, frame: Frame, time_range: TimeRange
) -> Table:
    """Return the history of some metrics of a GPU: the mean under the name of the metric, the lowest, the highest.

    Columns before the first sample are left out. The latest frame relates the frames' clock to Unix time.
    """
    first = time_range.first
    if timeline.first_seconds is not None:
        first = max(first, int(timeline.first_seconds // time_range.column_seconds))
    count = max(0, time_range.last - first + 1)
    columns = [timeline.columns(metric, first, count, time_range.column_seconds) for metric in metrics]
    clock_offset = frame.time_seconds - frame.monotonic_seconds
    rows = []
    for number, summaries in enumerate(zip(*columns, strict=True), first):
        values = tuple(chain.from_iterable(map(_values, summaries)))
        rows.append(CsvRow(clock_offset + number * time_range.column_seconds, device.index, device.uuid, values))
    names = tuple(f"{metric}{suffix}" for metric in metrics for suffix in ("", "_lowest", "_highest"))
    return Table(names, tuple(rows))


def save(table: Table, name: str) -> Path:
    """Write a table to a new file in the current folder or, where that fails, in the folder of workload results.

    The date and time follow ``name``.

    Returns:
        The file.

    Raises:
        CommandError: Neither folder is writable.
    """
    stem = f"{name}-{file_stamp()}"
    failure: OSError | RuntimeError = OSError()
    for folder in (Path.cwd, lambda: results_file().parent):
        try:
            return _write(table, folder(), stem)
        except (OSError, RuntimeError) as error:  # Path.home() raises RuntimeError for a user without a home folder
            failure = error
    why = getattr(failure, "strerror", None) or failure
    reason = f"The table can be written neither to the current folder nor to the folder of results: {why}."
    raise CommandError.failure(ProblemCode.NOT_WRITTEN, reason)


def _write(table: Table, folder: Path, stem: str) -> Path:
    """Write the complete file, or leave no file."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(1, _MAX_NAMES):
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.csv"
        with suppress(FileExistsError), new_file(path) as file:
            text = StringIO()
            write_table(table.rows, table.columns, text)
            file.write(text.getvalue().encode())
            return path
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _values(summary: Summary | None) -> tuple[float | None, float | None, float | None]:
    if summary is None:
        return None, None, None
    low, mean, high = (float(f"{value:.{_DIGITS}g}") for value in summary)
    return mean, low, high
