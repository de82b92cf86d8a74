"""What the title says of a stream, and its pace: an interval if it is live, a speed if it is a recording."""

from typing import Final

from gpumon.core.model import Frame
from gpumon.core.units import clock_text
from gpumon.streams.base import Adjustable, Seekable, Stream

INTERVALS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def source_text(stream: Stream, frame: Frame | None, *, paused: bool) -> str:
    """Where frames come from and how it stands; a driver so slow that the interval cannot be kept is told.

    Args:
        stream: The stream.
        frame: The frame that is shown.
        paused: Whether it stands still.
    """
    if isinstance(stream, Seekable):
        position = stream.position
        mark = "PAUSED" if paused else "END" if position.ended else "REPLAY"
        end = "" if position.duration_seconds is None else f"/{clock_text(position.duration_seconds)}"
        return f"{mark} {stream.title} {clock_text(position.seconds)}{end} x{position.speed:g}"
    mark = "PAUSED" if paused else stream.title
    if not isinstance(stream, Adjustable):
        return mark
    taken = 0.0 if frame is None else frame.sweep.seconds or 0.0
    slow = f", reading takes {taken:.1f} s" if taken > stream.interval else ""
    return f"{mark} every {stream.interval:g} s{slow}"


def change_pace(stream: Stream, direction: int) -> None:
    """Makes a stream faster (1) or slower (-1), where it has a pace of its own."""
    if isinstance(stream, Seekable):
        stream.set_speed(_neighbour(SPEEDS, stream.position.speed, direction))
    elif isinstance(stream, Adjustable):
        stream.set_interval(_neighbour(INTERVALS, stream.interval, -direction))


def seek_by(stream: Stream, seconds: float) -> None:
    """Moves a recording by so much; a negative number is backwards."""
    if isinstance(stream, Seekable):
        stream.seek(stream.position.seconds + seconds)


def _neighbour(steps: tuple[float, ...], value: float, direction: int) -> float:
    """The next step above or below a value."""
    if direction > 0:
        return next((step for step in steps if step > value), steps[-1])
    return next((step for step in reversed(steps) if step < value), steps[0])
