"""The tables of a trace: kernels or operators by time, and the times in which the GPU did nothing."""

from collections.abc import Callable
from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.core.units import count_text
from gpumon.present.account_rows import class_role
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import Column, RowT
from gpumon.present.trace_account import ns_text, work_label
from gpumon.traces.model import Gap, Total


def _times(value_ns: Callable[[RowT], float]) -> Cells[RowT]:
    """Times, which are nanoseconds in a trace."""
    return Cells(lambda row, _: Span(ns_text(value_ns(row))), lambda row: value_ns(row) / 1e9)


KERNEL_COLUMNS: Final[tuple[Column[Total], ...]] = columns(
    "kernels",
    {
        "time": _times(lambda row: row.time_ns),
        "count": numbers(lambda row: row.count, count_text),
        "mean": _times(lambda row: row.time_ns / max(1, row.count)),
        "longest": _times(lambda row: row.max_ns),
        "class": names(lambda row: work_label(row.kind), lambda row: class_role(row.kind)),
        "name": names(lambda row: row.name, Role.ACCENT),
    },
)
GAP_COLUMNS: Final[tuple[Column[Gap], ...]] = columns(
    "gaps",
    {
        "time": _times(lambda row: row.time_ns),
        "at": _times(lambda row: row.begin_ns),
        "cause": names(lambda row: LABELS[row.cause], lambda row: class_role(row.cause)),
        "what": names(lambda row: row.detail),
        "line": names(lambda row: row.line, Role.ACCENT),
        "then": names(lambda row: row.after, Role.DIM),
    },
)
