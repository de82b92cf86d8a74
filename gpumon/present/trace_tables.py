"""The tables of a trace: kernels or operators by time, and the times in which the GPU did nothing."""

from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.present.account_rows import class_role
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import Align, Column, Quantity
from gpumon.present.trace_account import ns_text, work_label
from gpumon.traces.model import Gap, Total

KERNEL_COLUMNS: Final[tuple[Column[Total], ...]] = (
    Column(
        "Time",
        9,
        lambda row, _: Span(ns_text(row.time_ns)),
        rank=0,
        id="time",
        sort_key=lambda row: row.time_ns / 1e9,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Count",
        8,
        lambda row, _: Span(f"{row.count:,}"),
        rank=2,
        id="count",
        sort_key=lambda row: row.count,
        descending_first=True,
    ),
    Column(
        "Mean",
        9,
        lambda row, _: Span(ns_text(row.time_ns / max(1, row.count))),
        rank=4,
        id="mean",
        sort_key=lambda row: row.time_ns / max(1, row.count) / 1e9,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Longest",
        9,
        lambda row, _: Span(ns_text(row.max_ns)),
        rank=5,
        id="longest",
        sort_key=lambda row: row.max_ns / 1e9,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Class",
        28,
        lambda row, _: Span(work_label(row.kind), class_role(row.kind)),
        rank=3,
        align=Align.LEFT,
        id="class",
        sort_key=lambda row: work_label(row.kind),
        text=lambda row: work_label(row.kind),
    ),
    Column(
        "Name",
        20,
        lambda row, _: Span(row.name, Role.ACCENT),
        rank=1,
        align=Align.LEFT,
        stretches=True,
        id="name",
        sort_key=lambda row: row.name,
        text=lambda row: row.name,
    ),
)

GAP_COLUMNS: Final[tuple[Column[Gap], ...]] = (
    Column(
        "Time",
        9,
        lambda row, _: Span(ns_text(row.time_ns)),
        rank=0,
        id="time",
        sort_key=lambda row: row.time_ns / 1e9,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "At",
        9,
        lambda row, _: Span(ns_text(row.begin_ns)),
        rank=3,
        id="at",
        sort_key=lambda row: row.begin_ns / 1e9,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Cause",
        18,
        lambda row, _: Span(LABELS[row.cause], class_role(row.cause)),
        rank=1,
        align=Align.LEFT,
        id="cause",
        sort_key=lambda row: LABELS[row.cause],
        text=lambda row: LABELS[row.cause],
    ),
    Column(
        "What",
        18,
        lambda row, _: Span(row.detail),
        rank=2,
        align=Align.LEFT,
        stretches=True,
        id="what",
        sort_key=lambda row: row.detail,
        text=lambda row: row.detail,
    ),
    Column(
        "Line",
        16,
        lambda row, _: Span(row.line, Role.ACCENT),
        rank=5,
        align=Align.LEFT,
        stretches=True,
        min_table_width=110,
        id="line",
        sort_key=lambda row: row.line,
        text=lambda row: row.line,
    ),
    Column(
        "Then",
        16,
        lambda row, _: Span(row.after, Role.DIM),
        rank=4,
        align=Align.LEFT,
        stretches=True,
        min_table_width=100,
        id="then",
        sort_key=lambda row: row.after,
        text=lambda row: row.after,
    ),
)
