"""The table of a result whose metrics have cases: a row for each case, and a column for each metric."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.core.workload_metrics import Measurement, label_text
from gpumon.operations.workload import MetricChange
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns, value_column
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.paint.table import Align
from gpumon.present.workload_text import change_text, share_text

_MAX_CASE_WIDTH: Final = 30
_SHARE_RANK: Final = 1000
_CHANGE_RANK: Final = 2000
_LIMIT_RANK: Final = 3000
"""Columns next to the values are left out first; the ranks of values are below."""

_Row = Sequence[Measurement | None]
"""A measurement for each case, or None where a case does not have it."""


def without_cases(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The measurements that are no part of the table of cases."""
    return [item for item in measurements if not item.case]


def case_lines(measurements: Iterable[Measurement], changes: Iterable[MetricChange], width: int) -> list[Line]:
    """The table; empty if no measurement has a case.

    Args:
        measurements: All measurements of a result.
        changes: Their changes since the last comparable run.
        width: Cells of a line, or 0 for as many as the table needs.
    """
    by_key = {item.key: item for item in measurements if item.case}
    if not by_key:
        return []
    cases = list(dict.fromkeys(case for _, case in by_key))
    names = list(dict.fromkeys(name for name, _ in by_key))
    shares = {change.key: change.share for change in changes}
    columns = [CellColumn(["Case"], [clipped(case, _MAX_CASE_WIDTH) for case in cases], -1)]
    values = {}
    for rank, name in enumerate(names):
        rows = [by_key.get((name, case)) for case in cases]
        unit = _common_unit(rows)
        texts = ["" if row is None else row.metric.text(row.value, has_unit=not unit) for row in rows]
        values[name] = value_column(label_text(name), texts, rank, unit)
        columns += [values[name], *_limit_columns(rows, unit, rank)]
        columns += _change_columns([change_text(shares.get((name, case))) for case in cases], rank)
    shown = fitting_columns(columns, width)
    hidden = [label_text(name) for name, column in values.items() if not any(column is item for item in shown)]
    lines = cell_table(shown)
    if hidden:
        lines.append(line(Span(clipped(f"Not enough width for: {', '.join(hidden)}.", width), Role.DIM)))
    return lines


def _limit_columns(row: _Row, unit: str, rank: int) -> list[CellColumn]:
    """The shares of the limits, and the limits; none where no limit is known."""
    shares = [None if item is None else item.share_of_limit for item in row]
    if not any(shares):
        return []
    percents = ["" if share is None else share_text(share).removesuffix(" %") for share in shares]
    limits = [
        item.metric.text(item.limit, has_unit=not unit) if item is not None and share else ""
        for item, share in zip(row, shares, strict=True)
    ]
    return [
        CellColumn(["of limit", "%"], percents, _SHARE_RANK + rank, Align.RIGHT),
        CellColumn(["limit", unit], limits, _LIMIT_RANK + rank, Align.RIGHT, Role.DIM),
    ]


def _change_columns(changes: Sequence[str], rank: int) -> list[CellColumn]:
    cells = [change.removesuffix(" %") for change in changes]
    return [CellColumn(["change", "%"], cells, _CHANGE_RANK + rank, Align.RIGHT)] if any(cells) else []


def _common_unit(row: _Row) -> str:
    """The unit that the heading shows: one that all values have; that of bytes depends on the value."""
    units = {item.metric.heading for item in row if item is not None}
    return units.pop() if len(units) == 1 else ""
