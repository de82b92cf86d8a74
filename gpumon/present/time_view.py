"""What charts show of a history: the zoom, whether they follow the newest values, and a cursor at one moment."""

from typing import Final

from gpumon.core.model import Frame
from gpumon.core.units import precise_age_text, time_of_day_text
from gpumon.present.time_axis import ZOOMS, TimeWindow, column_of, zooms_for

DEFAULT_ZOOM: Final = ZOOMS.index(2.0)
_MARGIN_DIVISOR: Final = 4
"""When the cursor passes an edge, the charts scroll until it is the width divided by this away from the edge."""


class TimeView:
    """The visible part of a history. Without a cursor it ends at the newest values; with a cursor it stands still.

    Args:
        zoom: Index in `ZOOMS` to begin with.

    Attributes:
        cursor: Number of the column under the cursor, or None.
    """

    def __init__(self, zoom: int = DEFAULT_ZOOM) -> None:
        self.cursor: int | None = None
        self._zoom = zoom
        self._zooms: tuple[float, ...] = ZOOMS
        self._last = 0
        """The newest visible column while there is a cursor."""
        self._window = TimeWindow(0, 1, ZOOMS[zoom])
        self._oldest = 0
        self._latest = 0

    def window(
        self, now_seconds: float, first_seconds: float | None, columns: int, history_seconds: float
    ) -> TimeWindow:
        """What to show now; what the history has dropped is not shown anymore.

        Args:
            now_seconds: Time of the latest frame.
            first_seconds: Start of the history, or None while there is none.
            columns: Width of a chart.
            history_seconds: How much history is kept.
        """
        self._zooms = zooms_for(history_seconds, columns)
        self._zoom = min(self._zoom, len(self._zooms) - 1)
        seconds = self._zooms[self._zoom]
        self._latest = column_of(now_seconds, seconds)
        self._oldest = self._latest if first_seconds is None else min(column_of(first_seconds, seconds), self._latest)
        last = self._latest
        if self.cursor is not None:
            self.cursor = max(self._oldest, min(self.cursor, self._latest))
            earliest = min(self._oldest + columns - 1, self._latest)
            last = self._last = max(earliest, min(self._last, self._latest))
        self._window = TimeWindow(last, columns, seconds)
        return self._window

    @property
    def cursor_index(self) -> int | None:
        """The cursor as an index in the window, which may lie outside; None without a cursor."""
        return None if self.cursor is None else self.cursor - self._window.first

    def move(self, columns: int) -> None:
        """Move the cursor, and scroll where it passes an edge. Without a cursor, set it at the newest column."""
        if self.cursor is None:
            self._last = self.cursor = self._window.last
            return
        self.cursor = max(self._oldest, min(self.cursor + columns, self._latest))
        margin = self._window.width // _MARGIN_DIVISOR
        if self.cursor < self._window.first:
            self._last = self.cursor - margin + self._window.width - 1
        elif self.cursor > self._window.last:
            self._last = self.cursor + margin

    def point(self, index: int) -> None:
        """Set the cursor to a column of the window."""
        self._last = self._window.last
        self.cursor = max(self._oldest, min(self._window.first + index, self._latest))

    def zoom(self, steps: int) -> None:
        """Show more or less time; the cursor keeps its place on the screen."""
        before = self._zooms[self._zoom]
        self._zoom = max(0, min(len(self._zooms) - 1, self._zoom + steps))
        if self.cursor is not None:
            distance = self._last - self.cursor
            self.cursor = column_of((self.cursor + 0.5) * before, self._zooms[self._zoom])
            self._last = self.cursor + distance

    def follow(self) -> None:
        """Remove the cursor and show the newest values."""
        self.cursor = None


def moment_text(seconds: float, frame: Frame) -> str:
    """A moment of the frames' clock as the time before now and the local time: ``2m 14s ago, 06:10:12``."""
    age = max(0.0, frame.monotonic_seconds - seconds)
    return f"{precise_age_text(age)} ago, {time_of_day_text(frame.time_seconds - age)}"
