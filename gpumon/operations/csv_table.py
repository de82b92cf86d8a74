"""Tables as CSV: GPU metrics over time, and metrics of results. A cell is empty where nothing was measured."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

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
