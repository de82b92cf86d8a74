"""The chart of one metric over time, of one GPU or of several, drawn again only when a column has passed."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.timeline import Summary, Timeline
from gpumon.present.limits import scale_of
from gpumon.present.metric_style import METRIC_ROLES
from gpumon.present.paint.area import Form, PlotSeries, area_chart
from gpumon.present.paint.line import Line, Role
from gpumon.present.time_axis import TimeWindow

_MAX_JITTER_INTERVALS: Final = 1.5
"""A frame may arrive this many intervals after the frame before; columns skipped within that time are not a gap."""


class Track(NamedTuple):
    """One GPU in a chart.

    Attributes:
        device: The device now, for the limits of its metrics.
        timeline: Its history, or None.
        role: Its color among several GPUs; a single GPU has the color of the metric.
    """

    device: Device
    timeline: Timeline | None
    role: Role


class _MetricColumns:
    """The values of a metric of one GPU, of which only new columns are read.

    Attributes:
        values: Oldest first; None for a gap.
    """

    def __init__(self) -> None:
        self.values: list[Summary | None] = []
        self._read_for: tuple[Timeline | None, int, float] | None = None
        self._last = 0

    def update(self, metric: str, timeline: Timeline | None, window: TimeWindow, interval: float) -> bool:
        """Read what is new in a window, and return whether anything was read."""
        parameters = (timeline, window.width, window.column_seconds)
        new = window.last - self._last
        is_same = self._read_for is not None and self._read_for[0] is timeline and self._read_for == parameters
        if is_same and new == 0:
            return False
        skipped = int(min(_MAX_JITTER_INTERVALS * interval / window.column_seconds, window.width))
        unsettled = max(1, skipped)  # the newest column was not complete yet, and a short gap may be filled now
        can_scroll = is_same and 0 < new <= window.width // 2
        count = min(window.width, new + unsettled) if can_scroll else window.width + skipped + 1
        newest = _columns(timeline, metric, window, count)
        columns = self.values[new : new + window.width - count] + newest if can_scroll else newest
        # A gap at the left edge is filled from the value before the edge.
        self.values = fill_short_gaps(columns, skipped)[-window.width :]
        self._read_for, self._last = parameters, window.last
        return True


class MetricChart:
    """The chart of a metric, cached between draws.

    Args:
        metric: Id of the metric.

    Attributes:
        rows: The drawn chart.
        summary: Minimum, mean and maximum of the values shown, or None without values.
        scale: The scale of the chart.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.scale = 1.0
        self.rows: list[Line] = []
        self.summary: Summary | None = None
        self._columns: dict[str, _MetricColumns] = {}
        self._drawn_for: object = None

    def draw(
        self, tracks: Sequence[Track], window: TimeWindow, height: int, interval: float, cursor: int | None = None
    ) -> None:
        """Bring the chart up to date. Does nothing until a column has passed.

        Args:
            tracks: The GPUs: the values of one are drawn as an area, the means of several as lines.
            window: What to show.
            height: Rows.
            interval: Seconds from frame to frame.
            cursor: Index of the column to mark, or None.
        """
        self._columns = {track.device.key: self._columns.get(track.device.key) or _MetricColumns() for track in tracks}
        changed = [
            self._columns[track.device.key].update(self.metric, track.timeline, window, interval) for track in tracks
        ]
        parameters = (height, cursor, [(track.device.key, track.role) for track in tracks])
        if parameters == self._drawn_for and not any(changed):
            return
        columns = [self.values_of(track) for track in tracks]
        self.summary = summary_of(value for values in columns for value in values)
        highest = 0.0 if self.summary is None else self.summary.high
        scale = max((scale_of(self.metric, track.device, highest) for track in tracks), default=1.0)
        self.scale, self._drawn_for = scale, parameters
        if len(tracks) > 1:
            means = ([None if value is None else value.mean for value in values] for values in columns)
            series = [PlotSeries(values, track.role, Form.LINE) for values, track in zip(means, tracks, strict=True)]
            self.rows = area_chart(series, scale, window.width, height, cursor=cursor)
            return
        area = PlotSeries(columns[0], METRIC_ROLES[self.metric])
        self.rows = area_chart([area], scale, window.width, height, cursor=cursor)

    def values_of(self, track: Track) -> Sequence[Summary | None]:
        """The values of a GPU that the chart shows, oldest first."""
        return self._columns[track.device.key].values


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
