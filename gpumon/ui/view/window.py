"""A time axis that scrolls and zooms through history: one column a stretch of time, the newest at the right."""

from typing import Final, NamedTuple

from gpumon.core.units import clock_text

ZOOMS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds of a column; each is a whole multiple of the buckets that history is kept in, so that none is split."""
_LABEL_CELLS: Final = 15
"""Labels stand at least so far apart."""
_STEPS: Final = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0)
_NOW: Final = "now"
_TICK: Final = "┴"
_LINE: Final = "─"


class Window(NamedTuple):
    """What a chart shows.

    Attributes:
        last: Number of the newest column; column n begins at n times its width, on the clock of the frames.
        width: Number of columns.
        column_seconds: Width of a column.
    """

    last: int
    width: int
    column_seconds: float

    @property
    def first(self) -> int:
        """Number of the oldest column."""
        return self.last - self.width + 1

    @property
    def begin_seconds(self) -> float:
        """The moment at its left edge."""
        return self.first * self.column_seconds

    @property
    def end_seconds(self) -> float:
        """The moment at its right edge."""
        return (self.last + 1) * self.column_seconds

    def place(self, seconds: float) -> int:
        """In which of its columns a moment is, the oldest being 0; it may lie outside."""
        return int(seconds // self.column_seconds) - self.first


def column_of(seconds: float, column_seconds: float) -> int:
    """In which column a moment is."""
    return int(seconds // column_seconds)


def zooms_for(history_seconds: float, columns: int) -> tuple[float, ...]:
    """The zooms that make sense: the last one shows all that is remembered."""
    all_of_it = next((place for place, zoom in enumerate(ZOOMS) if zoom * columns >= history_seconds), len(ZOOMS) - 1)
    return ZOOMS[: all_of_it + 1]


def axis_text(window: Window, now_seconds: float) -> str:
    """The axis: a tick and, after it, how long ago that was; ``now`` stands at the right end if that is in sight."""
    now = column_of(now_seconds, window.column_seconds)
    wanted = _LABEL_CELLS * window.column_seconds
    step_seconds = next((step for step in _STEPS if step >= wanted), _STEPS[-1])
    step = max(1, round(step_seconds / window.column_seconds))
    cells = [_LINE] * window.width
    for age in range(0, now - window.first + 1, step):
        label = f"{_TICK}-{clock_text(age * window.column_seconds)}" if age else f"{_NOW}{_TICK}"
        begin = now - age - window.first - (0 if age else len(_NOW))
        if begin >= 0 and begin + len(label) <= window.width:
            cells[begin : begin + len(label)] = label
    return "".join(cells)
