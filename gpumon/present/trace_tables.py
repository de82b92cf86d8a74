"""The tables of a trace: kernels or operators by time, and the times in which the GPU did nothing."""

from collections.abc import Callable
from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.core.units import count_text
from gpumon.present.account_rows import class_role
from gpumon.present.paint.columns import number_column, text_column
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import Column, Quantity, RowT
from gpumon.present.trace_account import ns_text, work_label
from gpumon.traces.model import Gap, Total


def _time_column(
    heading: str, column_id: str, value_ns: Callable[[RowT], float], rank: int, *, descending_first: bool = True
) -> Column[RowT]:
    """A column of times, which are nanoseconds in a trace."""
    return Column(
        heading,
        9,
        lambda row, _: Span(ns_text(value_ns(row))),
        rank,
        id=column_id,
        sort_key=lambda row: value_ns(row) / 1e9,
        descending_first=descending_first,
        quantity=Quantity.SECONDS,
    )


KERNEL_COLUMNS: Final[tuple[Column[Total], ...]] = (
    _time_column("Time", "time", lambda row: row.time_ns, 0),
    number_column("Count", 8, "count", lambda row: row.count, count_text, rank=2),
    _time_column("Mean", "mean", lambda row: row.time_ns / max(1, row.count), 4),
    _time_column("Longest", "longest", lambda row: row.max_ns, 5),
    text_column("Class", 28, "class", lambda row: work_label(row.kind), rank=3, role=lambda row: class_role(row.kind)),
    text_column("Name", 20, "name", lambda row: row.name, rank=1, max_width=0, role=lambda _: Role.ACCENT),
)

GAP_COLUMNS: Final[tuple[Column[Gap], ...]] = (
    _time_column("Time", "time", lambda row: row.time_ns, 0),
    _time_column("At", "at", lambda row: row.begin_ns, 3, descending_first=False),
    text_column("Cause", 18, "cause", lambda row: LABELS[row.cause], rank=1, role=lambda row: class_role(row.cause)),
    text_column("What", 18, "what", lambda row: row.detail, rank=2, max_width=0),
    text_column(
        "Line", 16, "line", lambda row: row.line, rank=5, max_width=0, min_table_width=110, role=lambda _: Role.ACCENT
    ),
    text_column(
        "Then", 16, "then", lambda row: row.after, rank=4, max_width=0, min_table_width=100, role=lambda _: Role.DIM
    ),
)
