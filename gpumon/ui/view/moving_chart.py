"""The chart of one metric, which is drawn anew only where it has to be: its time moves on by whole columns."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.timeline import Summary, Timeline
from gpumon.ui.paint.chart import Drawn, chart, moved_on
from gpumon.ui.view.limits import Scale, scale_of
from gpumon.ui.view.window import Window

_JITTER: Final = 1.5
"""A frame may come so many intervals after the one before: a column that it skips by that is no gap."""


class _Shape(NamedTuple):
    """What a chart was drawn for; with another one it is drawn anew."""

    timeline: Timeline | None
    width: int
    column_seconds: float
    height: int


class MovingChart:
    """A metric's chart.

    Args:
        metric: The metric.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.scale = Scale(1.0, is_limit=False)
        self.columns: list[Summary | None] = []
        """What it shows, oldest first."""
        self.rows: Drawn = ()
        """How that looks."""
        self.summary: Summary | None = None
        """The lowest, the mean and the highest of it."""
        self._shape: _Shape | None = None
        self._last = 0

    def draw(self, timeline: Timeline | None, device: Device, window: Window, height: int, interval: float) -> None:
        """Brings it up to date; does nothing while no column has passed.

        Args:
            timeline: The device's history.
            device: The device now, for the limits of its metrics.
            window: What to show.
            height: Rows.
            interval: Seconds from frame to frame.
        """
        shape = _Shape(timeline, window.width, window.column_seconds, height)
        new = window.last - self._last
        is_same_shape = self._shape is not None and shape == self._shape and shape.timeline is self._shape.timeline
        if is_same_shape and new == 0:
            return
        skipped = int(_JITTER * interval / window.column_seconds)
        unsettled = max(1, skipped)  # the newest column was not full yet, and a hole may be bridged now
        can_move = is_same_shape and 0 < new <= window.width // 2
        fetched = min(window.width, new + unsettled) if can_move else window.width + skipped + 1
        newest = _columns(timeline, self.metric, window, fetched)
        columns = self.columns[new : new + window.width - fetched] + newest if can_move else newest
        self.columns = bridged(columns, skipped)[-window.width :]  # a hole at the left edge is bridged from beyond it
        self.summary = summary_of(self.columns)
        scale = scale_of(self.metric, device, 0.0 if self.summary is None else self.summary.high)
        if can_move and scale == self.scale:
            self.rows = moved_on(self.rows, self.columns, scale.top, new, unsettled)
        else:
            self.rows = chart(self.columns, scale.top, height)
        self.scale, self._shape, self._last = scale, shape, window.last


def summary_of(columns: Iterable[Summary | None]) -> Summary | None:
    """The lowest, the mean and the highest of all columns that hold something."""
    shown = [each for each in columns if each is not None]
    if not shown:
        return None
    lows, means, highs = zip(*shown, strict=True)
    return Summary(min(lows), sum(means) / len(means), max(highs))


def bridged(columns: Sequence[Summary | None], longest: int) -> list[Summary | None]:
    """The columns with holes filled that are no longer than that, and that end; a longer one is a gap."""
    found = list(columns)
    if not longest:
        return found
    known: int | None = None
    for place, column in enumerate(columns):
        if column is None:
            continue
        if known is not None and 0 < place - known - 1 <= longest:
            found[known + 1 : place] = [columns[known]] * (place - known - 1)
        known = place
    return found


def _columns(timeline: Timeline | None, metric: str, window: Window, count: int) -> list[Summary | None]:
    if timeline is None:
        return [None] * count
    return timeline.columns(metric, window.last - count + 1, count, window.column_seconds)
