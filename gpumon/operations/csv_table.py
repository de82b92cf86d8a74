"""GPU metrics over time as CSV: one line per GPU and sample, and an empty cell where nothing was measured."""

import csv
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO


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
    """Write a header and one line per row, as the rows arrive.

    Args:
        rows: The rows.
        columns: Names of the value columns.
        out: The file to write to.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time_seconds", "index", "uuid", *columns])
    for row in rows:
        values = ["" if value is None else f"{value!r}" for value in row.values]
        writer.writerow([f"{row.time_seconds:.3f}", row.gpu, row.uuid or "", *values])
