"""Figures of GPUs over time as CSV: a line a GPU and moment, and nothing where nothing was measured."""

import csv
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO


class Moment(NamedTuple):
    """One GPU at one moment.

    Attributes:
        time_seconds: Unix time.
        gpu: NVML's index of it.
        uuid: Its UUID.
        values: What was measured, in the order of the table's columns.
    """

    time_seconds: float
    gpu: int
    uuid: str | None
    values: Sequence[float | None]


def write_table(moments: Iterable[Moment], columns: Sequence[str], out: TextIO) -> None:
    """Writes a heading and a line a moment, as they come.

    Args:
        moments: The lines.
        columns: Names of the values.
        out: Where to.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time_seconds", "index", "uuid", *columns])
    for moment in moments:
        values = ["" if value is None else f"{value!r}" for value in moment.values]
        writer.writerow([f"{moment.time_seconds:.3f}", moment.gpu, moment.uuid or "", *values])
