"""What a screen shows of one GPU over time as a file of its own: CSV, in the folder that the user stands in."""

import errno
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.timeline import Summary, Timeline
from gpumon.jobs.results import results_file
from gpumon.operations.table import Moment, write_table

_MOST_NAMES: Final = 100
_DIGITS: Final = 7
"""As many are held of a remembered value."""


class Stretch(NamedTuple):
    """A stretch of the frames' clock, from its first column to its last; column n begins at n times their width."""

    first: int
    last: int
    column_seconds: float


class Table(NamedTuple):
    """What is to be saved: names of the columns, and the lines."""

    columns: tuple[str, ...]
    moments: tuple[Moment, ...]


def course(timeline: Timeline, metrics: Sequence[str], device: Device, frame: Frame, stretch: Stretch) -> Table:
    """What is remembered of some metrics of a device: the mean under the metric's own name, the lowest, the highest.

    Args:
        timeline: What is remembered.
        metrics: Whose values are wanted.
        device: The device.
        frame: The newest frame, which ties its clock to the time of day.
        stretch: Which time; what lies before the first reading is left out.
    """
    first = stretch.first
    if timeline.first_seconds is not None:
        first = max(first, int(timeline.first_seconds // stretch.column_seconds))
    count = max(0, stretch.last - first + 1)
    columns = [timeline.columns(each, first, count, stretch.column_seconds) for each in metrics]
    began = frame.time_seconds - frame.monotonic_seconds
    moments = []
    for number, summaries in enumerate(zip(*columns, strict=True), first):
        values = tuple(chain.from_iterable(map(_values, summaries)))
        moments.append(Moment(began + number * stretch.column_seconds, device.index, device.uuid, values))
    return Table(tuple(f"{each}{which}" for each in metrics for which in ("", "_lowest", "_highest")), tuple(moments))


def save(table: Table, name: str) -> Path:
    """Writes a table to a new file in the current folder, or where gpumon keeps results if that cannot be.

    Args:
        table: What to write.
        name: What the file's name begins with; the time of day follows.

    Raises:
        CommandError: It can be written in neither.
    """
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    failure: OSError | RuntimeError = OSError()
    for folder in (Path.cwd, lambda: results_file().parent):
        try:
            return _write(table, folder(), stem)
        except (OSError, RuntimeError) as error:  # the latter where a user has no home
            failure = error
    why = getattr(failure, "strerror", None) or failure
    reason = f"The table could be written neither here nor where results are kept: {why}."
    raise CommandError(Problem(ProblemCode.NOT_WRITTEN, reason), ExitCode.BAD_VERDICT)


def _write(table: Table, folder: Path, stem: str) -> Path:
    """Writes the file, all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _new_file(folder, stem) as file:
        path = Path(file.name)
        try:
            write_table(table.moments, table.columns, file)
            file.flush()
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
    return path


def _new_file(folder: Path, stem: str) -> TextIO:
    """A file that was not there before."""
    for number in range(1, _MOST_NAMES):
        more = f"-{number}" if number > 1 else ""
        with suppress(FileExistsError):
            return (folder / f"{stem}{more}.csv").open("x", encoding="utf-8", newline="")
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _values(summary: Summary | None) -> tuple[float | None, float | None, float | None]:
    if summary is None:
        return None, None, None
    low, mean, high = (float(f"{value:.{_DIGITS}g}") for value in summary)
    return mean, low, high
