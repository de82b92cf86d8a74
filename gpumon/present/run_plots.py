"""Plots of a run's result, found by the names and units of its metrics: sweeps over a number, comparisons, and time.

A metric whose name contains one number, such as ``to_device_pinned_4KiB`` or ``block_128``, is a point of a sweep. What
remains is compared with the other metrics of the same unit. A live metric with many values is drawn over time.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, inf, log10
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from gpumon.core.units import short_time_text
from gpumon.jobs.state import JobResult, JobState
from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line
from gpumon.present.paint.plot import MAX_CURVES, AxisTick, Curve, legend, plot
from gpumon.present.workload_text import label_text, measurement_text

MIN_WIDTH: Final = 60
"""Cells below which nothing is plotted."""
_MAX_WIDTH: Final = 110
_HEIGHT: Final = 11
_POINT: Final = re.compile(r"(?P<before>\D*?)_?(?P<number>\d+)(?P<unit>B|[KMGT]iB)?(?P<after>_\D*)?")
_FACTORS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MIN_POINTS: Final = 3
_MIN_COMPARED: Final = 2
_MIN_SAMPLES: Final = 10
_NAME_WIDTH: Final = 30
_VALUE_WIDTH: Final = 13
_MAX_LINEAR_RATIO: Final = 1000.0
"""Between values that differ by more than this, the smaller ones could not be seen on a linear axis."""
_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class MetricSweep(NamedTuple):
    """Metrics of one unit over the same numbers.

    Attributes:
        unit: Their unit.
        labels: The numbers, rising.
        values: By the name of the metric: one value per number.
    """

    unit: str
    labels: tuple[str, ...]
    values: dict[str, tuple[float, ...]]


class Compared(NamedTuple):
    """A metric among others of the same unit."""

    name: str
    value: float
    limit: float | None


class _DrawnPlots(NamedTuple):
    """The plots of a result for a width."""

    result: JobResult
    width: int
    lines: list[Line]


_drawn: Final[WeakKeyDictionary[JobState, _DrawnPlots]] = WeakKeyDictionary()
"""The plots of each run, since plotext takes several milliseconds for each and the screen is drawn at every frame."""


def plot_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The plots of a run that has a result; empty where a terminal is too narrow.

    Args:
        run: The run.
        width: Cells of a line.
    """
    result = run.state.result
    if result is None or width < MIN_WIDTH:
        return []
    drawn = _drawn.get(run.state)
    if drawn is None or drawn.result is not result or drawn.width != width:
        drawn = _drawn[run.state] = _DrawnPlots(result, width, _plot_lines(run, result, min(width, _MAX_WIDTH)))
    return drawn.lines


def _plot_lines(run: WorkloadRun, result: JobResult, width: int) -> list[Line]:
    sweeps, rest = sweeps_of(result.measurements)
    sections = [_sweep_lines(sweep, width) for sweep in sweeps]
    sections += [_compared_lines(unit, compared, width) for unit, compared in comparisons_of(rest).items()]
    sections += _time_plots(run, width)
    return [part for section in sections for part in ((), *section)]


def sweeps_of(measurements: Iterable[Mapping[str, Any]]) -> tuple[list[MetricSweep], list[Mapping[str, Any]]]:
    """The sweeps among the metrics of a result, and the other metrics."""
    points: dict[tuple[str, str], dict[float, tuple[str, Mapping[str, Any]]]] = defaultdict(dict)
    rest = []
    for metric in measurements:
        match = _POINT.fullmatch(str(metric["name"]))
        if match is None or _number(metric) is None:
            rest.append(metric)
            continue
        name = (match["before"] + (match["after"] or "")).strip("_")
        unit = match["unit"] or ""
        position = float(match["number"]) * _FACTORS.get(unit, 1)
        points[name, str(metric["unit"])][position] = (match["number"] + unit, metric)
    grouped: dict[tuple[str, tuple[str, ...]], dict[str, tuple[float, ...]]] = defaultdict(dict)
    for (name, unit), by_position in points.items():
        ordered = [by_position[position] for position in sorted(by_position)]
        if len(ordered) < _MIN_POINTS:
            rest += [metric for _, metric in ordered]
            continue
        labels = tuple(label for label, _ in ordered)
        curves = grouped[unit, labels]
        if len(curves) < MAX_CURVES:
            curves[name] = tuple(float(metric["value"]) for _, metric in ordered)
    return [MetricSweep(unit, labels, curves) for (unit, labels), curves in grouped.items()], rest


def comparisons_of(measurements: Iterable[Mapping[str, Any]]) -> dict[str, list[Compared]]:
    """Metrics of one unit by that unit. Counts, which are complete numbers, are no measure to compare by."""
    groups: dict[str, list[Compared]] = defaultdict(list)
    for metric in measurements:
        value, limit = _number(metric), _number(metric, "limit")
        if value is not None:
            groups[str(metric["unit"])].append(Compared(label_text(str(metric["name"])), value, limit))
    return {
        unit: group
        for unit, group in groups.items()
        if len(group) >= _MIN_COMPARED and not all(compared.value.is_integer() for compared in group)
    }


def _number(metric: Mapping[str, Any], field: str = "value") -> float | None:
    value = metric.get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if _can_plot(value) else None


def _can_plot(value: float) -> bool:
    """Whether a value is on an axis that begins at 0."""
    return 0 <= value < inf


def _sweep_lines(sweep: MetricSweep, width: int) -> list[Line]:
    positions = range(len(sweep.labels))
    curves = [Curve(label_text(name), positions, values) for name, values in sweep.values.items()]
    ticks = [AxisTick(position, label) for position, label in zip(positions, sweep.labels, strict=True)]
    return _plotted(curves, sweep.unit, ticks, width)


def _time_plots(run: WorkloadRun, width: int) -> list[list[Line]]:
    """Each live metric with many values over the time since the start."""
    began = run.state.began_seconds
    sections: list[list[Line]] = []
    for name, samples in run.state.metrics.items():
        if began is None or len(samples) < _MIN_SAMPLES or not all(_can_plot(sample.value) for sample in samples):
            continue
        seconds = [max(0.0, sample.time_seconds - began) for sample in samples]
        curve = Curve(f"{label_text(name)} over time", seconds, [sample.value for sample in samples])
        end = seconds[-1]
        ticks = [AxisTick(0.0, "0 s"), *(AxisTick(share * end, short_time_text(share * end)) for share in (0.5, 1.0))]
        sections.append(_plotted([curve], run.state.units[name], ticks, width, has_points=False))
    return sections


def _plotted(
    curves: Sequence[Curve], unit: str, x_ticks: Sequence[AxisTick], width: int, *, has_points: bool = True
) -> list[Line]:
    """A heading with the unit and the legend, then the plot."""
    values = [value for curve in curves for value in curve.y]
    is_wide = min(values) > 0 and max(values) > _MAX_LINEAR_RATIO * min(values)
    if is_wide:
        curves = [curve._replace(y=[log10(value) for value in curve.y]) for curve in curves]
        decades = range(floor(log10(min(values))), ceil(log10(max(values))) + 1)
        y_ticks = [AxisTick(decade, measurement_text(10.0**decade, unit)) for decade in decades]
    else:
        top = _round_above(max(values))
        y_ticks = [AxisTick(share * top, measurement_text(share * top, unit)) for share in (0.0, 0.5, 1.0)]
    scale = ", logarithmic" if is_wide else ""
    heading = cut((Span(f" {unit}{scale}  ", Role.ACCENT), *legend(curves)), width)
    return [heading, *plot(curves, width, _HEIGHT, x_ticks, y_ticks, has_points=has_points)]


def _compared_lines(unit: str, compared: Sequence[Compared], width: int) -> list[Line]:
    """A bar for each metric; all have one scale, which ends at the highest value or limit."""
    top = max(max(metric.value, metric.limit or 0.0) for metric in compared) or 1.0
    room = width - _NAME_WIDTH - _VALUE_WIDTH - 5
    lines = [line(Span(f" {unit}  ", Role.ACCENT), Span(f"a full bar is {measurement_text(top, unit)}", Role.DIM))]
    for name, value, _ in compared:
        text = clipped(measurement_text(value, unit), _VALUE_WIDTH)
        bar = progress_bar(value / top, room)
        lines.append(
            line(f" {clipped(name, _NAME_WIDTH):<{_NAME_WIDTH}} {text:>{_VALUE_WIDTH}} ", Span(bar, Role.SERIES_1))
        )
    return lines


def _round_above(value: float) -> float:
    """A round number that is not below the value."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    return next((step * power for step in _STEPS if step * power >= value), 10 * power) if value > 0 else 1.0
