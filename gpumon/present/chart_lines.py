"""Charts as lines: a heading with the values now or at the cursor, the chart with its scale, and the time axis."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.timeline import Summary
from gpumon.core.units import of_text, step_text, value_text
from gpumon.present.limits import limited_text
from gpumon.present.metric_chart import MetricChart, Track
from gpumon.present.metric_style import METRIC_ROLES
from gpumon.present.paint.area import cursor_label, gutter, with_scale
from gpumon.present.paint.line import Line, Role, Span, cut, line, plain, width_of
from gpumon.present.time_axis import AXIS, TimeWindow, axis_text

AREA_GLYPH: Final = "⣿"
LINE_GLYPH: Final = "━"


def chart_lines(chart: MetricChart, tracks: Sequence[Track], width: int, cursor: int | None = None) -> list[Line]:
    """A heading, then the chart with its scale at the left and, of several GPUs, their labels at the right.

    Args:
        chart: The chart, drawn for these GPUs.
        tracks: The GPUs.
        width: Cells of a line.
        cursor: Index of the column whose values the heading shows; None shows the values now.
    """
    unit = METRICS[chart.metric].unit
    rows = with_scale(chart.rows, value_text(chart.scale, unit), value_text(chart.scale / 2, unit))
    if len(tracks) > 1:
        rows = _with_labels(rows, chart, tracks)
        return [_legend(chart, tracks, width, cursor), *rows]
    return [_heading(chart, tracks[0], width, cursor), *rows]


def labels_width(tracks: Sequence[Track]) -> int:
    """Cells at the right of a chart for the labels of its GPUs; 0 for one GPU."""
    return 1 + max(width_of(track.device.label) for track in tracks) if len(tracks) > 1 else 0


def _heading(chart: MetricChart, track: Track, width: int, cursor: int | None) -> Line:
    metric = METRICS[chart.metric]
    text = "nothing measured in the time shown"
    if chart.summary is not None:
        low, mean, high = (value_text(_rounded(value), metric.unit) for value in chart.summary)
        text = f"min {low}  mean {mean}  max {high}"
    value = Span(limited_text(chart.metric, track.device))
    if cursor is not None:
        value = Span(f" {_summary_text(chart.values_of(track)[cursor], metric.unit)} ", Role.CURSOR)
    parts = (Span(f" {AREA_GLYPH} ", METRIC_ROLES[chart.metric]), Span(f"{metric.label}  ", Role.ACCENT), value)
    room = width - width_of(plain(parts)) - 1
    return cut(line(*parts, Span(f"{text:>{room}} " if width_of(text) + 2 <= room else "", Role.DIM)), width)


def _legend(chart: MetricChart, tracks: Sequence[Track], width: int, cursor: int | None) -> Line:
    """The metric, then the label and the value of each GPU."""
    metric = METRICS[chart.metric]
    spans = [Span(f" {metric.label}", Role.ACCENT)]
    for track in tracks:
        if cursor is None:
            text = value_text(track.device.get(chart.metric), metric.unit)
        else:
            text = _summary_text(chart.values_of(track)[cursor], metric.unit)
        spans += [Span(f"  {LINE_GLYPH} GPU {track.device.label} ", track.role), Span(text)]
    return cut(spans, width)


def _summary_text(summary: Summary | None, unit: Unit) -> str:
    """The mean of a column, and its range where the values differ."""
    if summary is None:
        return "not measured"
    low, mean, high = (value_text(_rounded(value), unit) for value in summary)
    return mean if low == high else f"{mean} ({of_text(low, high, 'to')})"


def _rounded(value: float) -> float:
    """History keeps six digits; more than three decimals of a mean carry no information."""
    return round(value, 1) if abs(value) >= 1 else round(value, 3)


def _with_labels(rows: Sequence[Line], chart: MetricChart, tracks: Sequence[Track]) -> list[Line]:
    """The rows with the label of each GPU next to its newest value, or in the nearest free row."""
    labels: dict[int, Span] = {}
    for track in tracks:
        newest = next((value for value in reversed(chart.values_of(track)) if value is not None), None)
        if newest is None:
            continue
        wanted = round((1 - min(1.0, newest.mean / chart.scale)) * (len(rows) - 1))
        distances = [(abs(row - wanted), row) for row in range(len(rows)) if row not in labels]
        if distances:
            labels[min(distances)[1]] = Span(f" {track.device.label}", track.role)
    return [(*row, *([labels[number]] if number in labels else [])) for number, row in enumerate(rows)]


def axis_line(window: TimeWindow, now_seconds: float, cursor: int | None = None, moment: str = "") -> Line:
    """The time axis below all charts.

    Args:
        window: The time shown.
        now_seconds: Time of the latest frame.
        cursor: Index of the column under the cursor, or None.
        moment: The time at the cursor.
    """
    label = gutter(f"{step_text(window.column_seconds)}/col", "└")
    axis = axis_text(window, now_seconds)
    if cursor is None:
        return line(label, Span(axis, Role.DIM))
    begin, text = cursor_label(cursor, moment, window.width)
    before, after = axis[:begin], axis[begin + len(text) :]
    kept, covered = before.rfind(AXIS) + 1, after.find(AXIS) if AXIS in after else len(after)
    # What is left of a label that the text covers would be misread.
    before, after = before[:kept].ljust(begin, AXIS), AXIS * covered + after[covered:]
    return line(label, Span(before, Role.DIM), Span(text, Role.CURSOR), Span(after, Role.DIM))
