"""The table of a result whose metrics have cases: a row for each case, and a column for each metric."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpumon.operations.workload import MetricChange
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns, value_column
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.paint.table import Align
from gpumon.present.workload_text import (
    BYTE_UNITS,
    change_text,
    label_text,
    measurement_text,
    share_of_limit,
    share_text,
)
from gpumon.workload_runs.protocol import metric_key

_MAX_CASE_WIDTH: Final = 30
_SHARE_RANK: Final = 1000
_CHANGE_RANK: Final = 2000
_LIMIT_RANK: Final = 3000
"""Columns next to the values are left out first; the ranks of values are below."""

_Metrics = Sequence[Mapping[str, Any] | None]
"""A metric for each case, or None where a case does not have it."""


def without_cases(metrics: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The metrics that are no part of the table of cases."""
    return [metric for metric in metrics if not metric.get("case")]


def case_lines(metrics: Iterable[Mapping[str, Any]], changes: Iterable[MetricChange], width: int) -> list[Line]:
    """The table; empty if no metric has a case.

    Args:
        metrics: All metrics of a result.
        changes: Their changes since the last comparable run.
        width: Cells of a line, or 0 for as many as the table needs.
    """
    by_key = {metric_key(metric): metric for metric in metrics if metric.get("case")}
    if not by_key:
        return []
    cases = list(dict.fromkeys(case for _, case in by_key))
    names = list(dict.fromkeys(name for name, _ in by_key))
    shares = {(change.name, change.case): change.share for change in changes}
    columns = [CellColumn(["Case"], [clipped(case, _MAX_CASE_WIDTH) for case in cases], -1)]
    values = {}
    for rank, name in enumerate(names):
        rows = [by_key.get((name, case)) for case in cases]
        unit = _common_unit(rows)
        values[name] = value_column(label_text(name), [_value_text(row, "value", unit) for row in rows], rank, unit)
        columns += [values[name], *_limit_columns(rows, unit, rank)]
        columns += _change_columns([change_text(shares.get((name, case))) for case in cases], rank)
    shown = fitting_columns(columns, width)
    hidden = [label_text(name) for name, column in values.items() if not any(column is item for item in shown)]
    lines = cell_table(shown)
    if hidden:
        lines.append(line(Span(clipped(f"Not enough width for: {', '.join(hidden)}.", width), Role.DIM)))
    return lines


def _limit_columns(metrics: _Metrics, unit: str, rank: int) -> list[CellColumn]:
    """The shares of the limits, and the limits; none where no limit is known."""
    shares = [None if metric is None else share_of_limit(metric) for metric in metrics]
    if not any(shares):
        return []
    percents = ["" if share is None else share_text(share).removesuffix(" %") for share in shares]
    limits = [
        _value_text(metric if share else None, "limit", unit) for metric, share in zip(metrics, shares, strict=True)
    ]
    return [
        CellColumn(["of limit", "%"], percents, _SHARE_RANK + rank, Align.RIGHT),
        CellColumn(["limit", unit], limits, _LIMIT_RANK + rank, Align.RIGHT, Role.DIM),
    ]


def _change_columns(changes: Sequence[str], rank: int) -> list[CellColumn]:
    cells = [change.removesuffix(" %") for change in changes]
    return [CellColumn(["change", "%"], cells, _CHANGE_RANK + rank, Align.RIGHT)] if any(cells) else []


def _common_unit(metrics: _Metrics) -> str:
    """The unit that the heading shows: one that all values have; that of bytes depends on the value."""
    units = {str(metric["unit"]) for metric in metrics if metric is not None}
    unit = units.pop()
    return "" if units or unit in BYTE_UNITS else unit


def _value_text(metric: Mapping[str, Any] | None, field: str, unit: str) -> str:
    if metric is None:
        return ""
    return measurement_text(metric.get(field), "" if unit else str(metric["unit"]))
