"""The map of the fleet: a row for each host, a cell for each of its GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Final, NamedTuple

from gpumon.core.units import MISSING, age_text, percent_of, percent_text, power_text
from gpumon.operations.fleet.findings import POWER, TOTAL, USED, UTILIZATION, FindingKind
from gpumon.operations.fleet.report import FleetGroup, FleetReport
from gpumon.present.heat_map import MapMode
from gpumon.present.metric_style import load_role
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Line, Role, Span, clipped, merged
from gpumon.present.paint.sparkline import block
from gpumon.present.paint.table import Column

_WITH_VALUE: Final = 6
"""Cells of a GPU from which on its value is written."""
_MAX_CELL: Final = 7
_MIN_CELLS: Final = 20
_REASON: Final = 60
"""Cells for the reason why a host reports nothing."""
_MIN_CELSIUS: Final = 20.0
_MAX_CELSIUS: Final = 100.0


class FleetMetric(MapMode):
    """What the map shows, and in which order; the value is its name for the user."""

    UTILIZATION = "utilization"
    MEMORY = "memory"
    POWER = "power, of the highest"
    TEMPERATURE = "temperature"
    IDLE = "utilization, idle first"


class MapRow(NamedTuple):
    """A host on the map.

    Attributes:
        host: The host.
        report: The report that it is part of.
        metric: What its cells show.
        cells: The largest number of GPUs of a host.
        highest_watts: The highest power of all GPUs.
    """

    host: FleetGroup
    report: FleetReport
    metric: FleetMetric
    cells: int
    highest_watts: float


def map_rows(report: FleetReport, metric: FleetMetric) -> Sequence[MapRow]:
    """A row for each host, in the order of the metric."""
    hosts = report.hosts
    if metric is FleetMetric.IDLE:
        idle = {host.name: 1 - host.totals.busy / len(host.positions) for host in hosts if host.totals.busy is not None}
        hosts = sorted(hosts, key=lambda host: (not host.positions, -idle.get(host.name, 0.0)))
    cells = max((len(host.positions) for host in hosts), default=1)
    power = report.snapshot.values.get(POWER, ())
    highest = max((value for value in power if not isnan(value)), default=0.0)
    return [MapRow(host, report, metric, cells, highest) for host in hosts]


def _gpus(row: MapRow, width: int) -> Line:
    """The cells of a host, as wide as there is room for all GPUs of the largest host."""
    if not row.host.positions:
        return (Span(clipped(f"! {row.host.problem or 'reports nothing'}", width), Role.ERROR),)
    cell = max(1, min(_MAX_CELL, width // max(1, row.cells)))
    findings = row.report.findings_by_gpu
    spans = []
    for position in row.host.positions[: max(1, width // cell)]:
        percent, text = _READERS[row.metric](row, position)
        role = Role.DIM if percent is None else load_role(percent)
        glyph = MISSING if percent is None else "·" if percent < 1 else block(percent)
        kinds = {finding.kind for finding in findings.get(position, ())}
        if kinds:
            role = Role.ERROR if FindingKind.XID in kinds else Role.WARNING
        spans.append(Span(_cell("!" if kinds else "", glyph, text, cell), role))
    return merged(spans)


def _cell(mark: str, glyph: str, text: str, width: int) -> str:
    if width >= _WITH_VALUE:
        return f"{mark or ' '}{glyph}{text:>4}".ljust(width)
    if width == 1:
        return mark or glyph
    return f"{mark or ' '}{glyph * (width - 1)}" if width > 2 else f"{mark or glyph}{glyph}"


_Reading = tuple[float | None, str]


def _percent(value: float | None) -> _Reading:
    return value, "" if value is None else percent_text(value)


def _utilization(row: MapRow, position: int) -> _Reading:
    return _percent(row.report.snapshot.value(UTILIZATION, position))


def _memory(row: MapRow, position: int) -> _Reading:
    snapshot = row.report.snapshot
    return _percent(percent_of(snapshot.value(USED, position), snapshot.value(TOTAL, position)))


def _power(row: MapRow, position: int) -> _Reading:
    watts = row.report.snapshot.value(POWER, position)
    return None if watts is None else 100 * watts / (row.highest_watts or 1.0), "" if watts is None else f"{watts:.0f}"


def _temperature(row: MapRow, position: int) -> _Reading:
    value = row.report.snapshot.value("temperature_celsius", position)
    if value is None:
        return None, ""
    return max(1.0, 100 * (value - _MIN_CELSIUS) / (_MAX_CELSIUS - _MIN_CELSIUS)), f"{value:.0f}°"


_READERS: Final[dict[FleetMetric, Callable[[MapRow, int], _Reading]]] = {
    FleetMetric.UTILIZATION: _utilization,
    FleetMetric.MEMORY: _memory,
    FleetMetric.POWER: _power,
    FleetMetric.TEMPERATURE: _temperature,
    FleetMetric.IDLE: _utilization,
}


_CELLS: Final[Mapping[str, Cells[MapRow]]] = {
    "host": names(lambda row: row.host.name, lambda row: Role.PLAIN if row.host.positions else Role.ERROR),
    "gpus": Cells(_gpus, text=lambda row: "" if row.host.positions else "silent"),
    "util": numbers(lambda row: row.host.totals.utilization_percent, percent_text, Span),
    "power": numbers(lambda row: row.host.totals.power_watts, power_text, Span),
    "age": numbers(lambda row: row.host.age_seconds, age_text, Span),
    "owner": names(lambda row: " ".join((*row.host.users, *row.host.jobs)), Role.DIM),
}


def map_columns(report: FleetReport | None, metric: FleetMetric) -> Sequence[Column[MapRow]]:
    """The columns; that of the GPUs has room for all GPUs of the largest host."""
    hosts = () if report is None else report.hosts
    cells = 8 if report is None else max((len(host.positions) for host in hosts), default=1)
    room = max(_REASON if any(host.problem for host in hosts) else _MIN_CELLS, _MAX_CELL * cells)
    width = min(40, max(_MIN_CELLS, cells))
    return [
        replace(column, heading=f"GPUs by {metric.value}", width=width, max_width=room)
        if column.id == "gpus"
        else column
        for column in columns("fleet-map", _CELLS)
    ]
