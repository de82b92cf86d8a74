"""Plots of a run's result: curves of sweeps, bars of comparisons, and live metrics over time."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log2, log10
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from gpumon.core.units import short_time_text
from gpumon.core.workload_metrics import MetricFormat, WorkloadMetric
from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, width_of
from gpumon.present.paint.plot import AxisTick, Curve, legend, plot
from gpumon.present.run_series import Comparison, MetricSweep, comparisons_of, is_drawable, sweeps_of
from gpumon.workload_runs.state import RunResult, RunState

MIN_WIDTH: Final = 60
"""Cells below which nothing is plotted."""
_MAX_WIDTH: Final = 110
_HEIGHT: Final = 11
_MAX_SWEEPS: Final = 4
_MAX_COMPARISONS: Final = 3
"""Metrics whose cases are compared; those that matter come first, and the table has all of them."""
_MIN_SAMPLES: Final = 10
_NAME_WIDTH: Final = 30
_VALUE_WIDTH: Final = 13
_TICK_GAP: Final = 2
_MAX_LINEAR_RATIO: Final = 1000.0
"""Between values that differ by more than this, the smaller ones could not be seen on a linear axis."""
_MAX_LINEAR_RATIO_OF_AMOUNTS: Final = 100.0
"""The same for times and amounts over a logarithmic axis, which grow with it; a rate comes to a limit."""
_MAX_LINEAR_POSITIONS: Final = 16.0
"""The same for the numbers of a sweep on the horizontal axis, most of which are powers of two."""
_MAX_BYTE_STEPS: Final = 4
_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class _DrawnPlots(NamedTuple):
    """The plots of a result for a width."""

    result: RunResult
    width: int
    lines: list[Line]


_drawn: Final[WeakKeyDictionary[RunState, _DrawnPlots]] = WeakKeyDictionary()
"""The plots of each run, since plotext takes several milliseconds for each and the screen is drawn at every frame."""


def plot_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The plots of a run that has a result; empty where a terminal is too narrow."""
    result = run.state.result
    if result is None or width < MIN_WIDTH:
        return []
    drawn = _drawn.get(run.state)
    if drawn is None or drawn.result is not result or drawn.width != width:
        drawn = _drawn[run.state] = _DrawnPlots(result, width, _plot_lines(run, result, min(width, _MAX_WIDTH)))
    return drawn.lines


def _plot_lines(run: WorkloadRun, result: RunResult, width: int) -> list[Line]:
    sweeps, rest = sweeps_of(result.measurements)
    sections = [_sweep_lines(sweep, width) for sweep in sweeps[:_MAX_SWEEPS]]
    sections += [comparison_lines(comparison, width) for comparison in comparisons_of(rest)[:_MAX_COMPARISONS]]
    if not any(item.case for item in result.measurements):  # else it would be one case after the other
        sections += _time_plots(run, width)
    return [part for section in sections for part in ((), *section)]


def _sweep_lines(sweep: MetricSweep, width: int) -> list[Line]:
    places = _places(list(sweep.labels))
    curves = [
        Curve(name, [places[at] for at in values], list(values.values())) for name, values in sweep.curves.items()
    ]
    ticks = [AxisTick(places[at], label) for at, label in sweep.labels.items()]
    by = f" by {sweep.axis}" if sweep.axis else ""
    can_grow = "/" not in sweep.metric.unit and _is_wide(list(sweep.labels))
    ratio = _MAX_LINEAR_RATIO_OF_AMOUNTS if can_grow else _MAX_LINEAR_RATIO
    shown = _thinned(ticks, width - _VALUE_WIDTH)
    return plotted(curves, sweep.metric, shown, width, title=f"{sweep.title}{by}", max_linear_ratio=ratio)


def _places(positions: Sequence[float]) -> dict[float, float]:
    """Where positions stand on the axis: logarithmic if they differ much, one after the other if the first is 0 too."""
    positive = [position for position in positions if position > 0]
    if not _is_wide(positions):
        return {position: position for position in positions}
    if len(positive) < len(positions):
        return {position: float(index) for index, position in enumerate(positions)}
    return {position: log2(position) for position in positions}


def _is_wide(positions: Sequence[float]) -> bool:
    """Whether positions differ so much that a linear axis could not show the smaller ones."""
    positive = [position for position in positions if position > 0]
    return bool(positive) and max(positive) >= _MAX_LINEAR_POSITIONS * min(positive)


def _thinned(ticks: Sequence[AxisTick], cells: int) -> Sequence[AxisTick]:
    """Every label, or every second and so on, so that labels do not touch; the last one stays."""
    extent = (ticks[-1].at - ticks[0].at) or 1.0
    for step in range(1, len(ticks)):
        kept = ticks[::-1][::step][::-1]
        gaps = [
            (right.at - left.at) / extent * cells
            - width_of(left.text) / 2
            - width_of(right.text) / (1 if right is kept[-1] else 2)  # the last one ends where the axis ends
            for left, right in pairwise(kept)
        ]
        if all(gap >= _TICK_GAP for gap in gaps):
            return kept
    return [ticks[-1]]


def _time_plots(run: WorkloadRun, width: int) -> list[list[Line]]:
    """Each live metric with many values over the time since the start."""
    began = run.state.began_seconds
    sections: list[list[Line]] = []
    for metric, samples in run.state.metrics.items():
        can_plot = all(is_drawable(sample.value) for sample in samples)
        if began is None or len(samples) < _MIN_SAMPLES or not can_plot:
            continue
        seconds = [max(0.0, sample.time_seconds - began) for sample in samples]
        curve = Curve(f"{metric.label} over time", seconds, [sample.value for sample in samples])
        end = seconds[-1]
        ticks = [AxisTick(0.0, "0 s"), *(AxisTick(share * end, short_time_text(share * end)) for share in (0.5, 1.0))]
        sections.append(plotted([curve], metric, ticks, width, has_points=False))
    return sections


def plotted(
    curves: Sequence[Curve],
    metric: WorkloadMetric,
    x_ticks: Sequence[AxisTick],
    width: int,
    *,
    title: str = "",
    has_points: bool = True,
    max_linear_ratio: float = _MAX_LINEAR_RATIO,
    from_zero: bool = True,
) -> list[Line]:
    """A heading with the legend, then the plot, with a logarithmic axis if the values differ much.

    Args:
        curves: The curves.
        metric: Has the unit of the values, and writes them.
        x_ticks: Labels of the horizontal axis.
        width: Cells of a line.
        title: Stands before the legend; by default the unit.
        has_points: Whether each value is marked with a point.
        max_linear_ratio: Between the smallest and the largest value on a linear axis.
        from_zero: Whether a linear axis begins at 0, and not just below values that differ little.
    """
    values = [value for curve in curves for value in curve.y]
    is_wide = min(values) > 0 and max(values) > max_linear_ratio * min(values)
    if is_wide:
        curves = [curve._replace(y=[log10(value) for value in curve.y]) for curve in curves]
        y_ticks = [AxisTick(log10(value), metric.text(value)) for value in _powers(values, metric)]
    elif not from_zero and min(values) > max(values) / 2:
        step = _round_above(max(max(values) - min(values), max(values) / 100) / 2, metric)
        first, last = floor(min(values) / step), ceil(max(values) / step)
        first, last = (first - 1, last + 1) if first == last else (first, last)
        y_ticks = [AxisTick(step * count, metric.text(step * count)) for count in range(first, last + 1)]
    else:
        top = _round_above(max(values), metric)
        y_ticks = [AxisTick(share * top, metric.text(share * top)) for share in (0.0, 0.5, 1.0)]
    scale = ", logarithmic" if is_wide else ""
    heading = _flowed(Span(f" {title or metric.unit}{scale}  ", Role.ACCENT), legend(curves), width)
    return [*heading, *plot(curves, width, _HEIGHT, x_ticks, y_ticks, has_points=has_points)]


def _powers(values: Sequence[float], metric: WorkloadMetric) -> list[float]:
    """Powers of ten, or for bytes of two, from below the smallest value to above the largest."""
    if metric.format is not MetricFormat.BYTES:
        return [10.0**power for power in range(floor(log10(min(values))), ceil(log10(max(values))) + 1)]
    first, last = floor(log2(min(values))), ceil(log2(max(values)))
    step = ceil((last - first) / _MAX_BYTE_STEPS)
    return [2.0**power for power in range(first, last + step, step)]


def _flowed(title: Span, names: Sequence[Span], width: int) -> list[Line]:
    """The title and the legend, in as many lines as they need."""
    lines: list[list[Span]] = [[title]]
    room = width - width_of(title.text)
    for name in names:
        if width_of(name.text) > room and len(lines[-1]) > 1:
            lines.append([Span("   ")])
            room = width - width_of("   ")
        lines[-1].append(Span(clipped(name.text, room), name.role))
        room -= width_of(name.text)
    return [line(*spans) for spans in lines]


def comparison_lines(comparison: Comparison, width: int) -> list[Line]:
    """A bar for each value; all have one scale, which ends at the highest value or limit."""
    metric = comparison.metric
    top = max(max(compared.value, compared.limit or 0.0) for compared in comparison.values) or 1.0
    name_width = min(_NAME_WIDTH, max(width_of(compared.name) for compared in comparison.values))
    room = width - name_width - _VALUE_WIDTH - 5
    scale = Span(f"a full bar is {metric.text(top)}", Role.DIM)
    lines = [cut((Span(f" {comparison.title}  ", Role.ACCENT), scale), width)]
    for name, value, _ in comparison.values:
        text = clipped(metric.text(value), _VALUE_WIDTH)
        bar = Span(progress_bar(value / top, room), Role.SERIES_1)
        lines.append(line(f" {clipped(name, name_width):<{name_width}} {text:>{_VALUE_WIDTH}} ", bar))
    return lines


def _round_above(value: float, metric: WorkloadMetric) -> float:
    """A round number of the unit, or of KiB, MiB and so on, that is not below the value."""
    if metric.format is MetricFormat.BYTES and value >= 1024:
        return 1024 * _round_above(value / 1024, metric)
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    return next((step * power for step in _STEPS if step * power >= value), 10 * power) if value > 0 else 1.0
