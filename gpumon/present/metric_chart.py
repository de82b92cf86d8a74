"""The chart of one metric over time. It is redrawn only where necessary: it scrolls by complete columns."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.timeline import Summary, Timeline
from gpumon.present.limits import scale_of
from gpumon.present.paint.chart import Rows, advance_chart, chart
from gpumon.present.time_axis import TimeWindow

_MAX_JITTER_INTERVALS: Final = 1.5
"""A frame may arrive this many intervals after the frame before; columns skipped within that time are not a gap."""


class _MetricChartParameters(NamedTuple):
    """What a chart was drawn for. It is redrawn completely when one of these changes."""

    timeline: Timeline | None
    width: int
    column_seconds: float
    height: int


class MetricChart:
    """The chart of a metric, cached between draws.

    Args:
        metric: Id of the metric.

    Attributes:
        columns: The values shown, oldest first.
        rows: The drawn chart.
        summary: Minimum, mean and maximum of the values shown, or None without values.
        scale: The scale of the chart.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.scale = 1.0
        self.columns: list[Summary | None] = []
        self.rows: Rows = ()
        self.summary: Summary | None = None
        self._drawn_for: _MetricChartParameters | None = None
        self._last = 0

    def draw(self, timeline: Timeline | None, device: Device, window: TimeWindow, height: int, interval: float) -> None:
        """Brings the chart up to date. Does nothing until a column has passed.

        Args:
            timeline: The device's history.
            device: The device now, for the limits of its metrics.
            window: What to show.
            height: Rows.
            interval: Seconds from frame to frame.
        """
        parameters = _MetricChartParameters(timeline, window.width, window.column_seconds, height)
        new = window.last - self._last
        is_same = self._drawn_for is not None and parameters == self._drawn_for and timeline is self._drawn_for.timeline
        if is_same and new == 0:
            return
        skipped = int(min(_MAX_JITTER_INTERVALS * interval / window.column_seconds, window.width))
        unsettled = max(1, skipped)  # the newest column was not complete yet, and a short gap may be filled now
        can_scroll = is_same and 0 < new <= window.width // 2
        fetched = min(window.width, new + unsettled) if can_scroll else window.width + skipped + 1
        newest = _columns(timeline, self.metric, window, fetched)
        columns = self.columns[new : new + window.width - fetched] + newest if can_scroll else newest
        # A gap at the left edge is filled from the value before the edge.
        self.columns = fill_short_gaps(columns, skipped)[-window.width :]
        self.summary = summary_of(self.columns)
        scale = scale_of(self.metric, device, 0.0 if self.summary is None else self.summary.high)
        if can_scroll and scale == self.scale:
            self.rows = advance_chart(self.rows, self.columns, scale, new, unsettled)
        else:
            self.rows = chart(self.columns, scale, height)
        self.scale, self._drawn_for, self._last = scale, parameters, window.last


def summary_of(columns: Iterable[Summary | None]) -> Summary | None:
    """Minimum, mean and maximum over all columns that hold a value."""
    summaries = [column for column in columns if column is not None]
    if not summaries:
        return None
    lows, means, highs = zip(*summaries, strict=True)
    return Summary(min(lows), sum(means) / len(means), max(highs))


def fill_short_gaps(columns: Sequence[Summary | None], max_columns: int) -> list[Summary | None]:
    """The columns with every gap of up to ``max_columns`` between two values filled with the value before it."""
    filled = list(columns)
    if not max_columns:
        return filled
    known: int | None = None
    for index, column in enumerate(columns):
        if column is None:
            continue
        if known is not None and 0 < index - known - 1 <= max_columns:
            filled[known + 1 : index] = [columns[known]] * (index - known - 1)
        known = index
    return filled


def _columns(timeline: Timeline | None, metric: str, window: TimeWindow, count: int) -> list[Summary | None]:
    if timeline is None:
        return [None] * count
    return timeline.columns(metric, window.last - count + 1, count, window.column_seconds)
