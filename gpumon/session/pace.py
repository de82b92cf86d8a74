"""A stream in the title, and its pace: the interval of a live stream, the speed of a recording."""

from typing import Final

from gpumon.core.model import Frame
from gpumon.core.units import clock_text
from gpumon.streams.base import Adjustable, Seekable, Stream

INTERVALS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def source_text(stream: Stream, frame: Frame | None, *, paused: bool) -> str:
    """The source of the frames and its state; says so if a sample takes longer than the interval.

    Args:
        stream: The stream.
        frame: The frame that is shown.
        paused: Whether the screen is paused.
    """
    if isinstance(stream, Seekable):
        position = stream.position
        mark = "PAUSED" if paused else "END" if position.ended else "REPLAY"
        end = "" if position.duration_seconds is None else f"/{clock_text(position.duration_seconds)}"
        return f"{mark} {stream.title} {clock_text(position.seconds)}{end} x{position.speed:g}"
    mark = "PAUSED" if paused else stream.title
    if not isinstance(stream, Adjustable):
        return mark
    duration = 0.0 if frame is None else frame.sweep.seconds or 0.0
    slow = f", a sample takes {duration:.1f} s" if duration > stream.interval else ""
    return f"{mark} {stream.interval:g}s{slow}"


def change_pace(stream: Stream, direction: int) -> None:
    """Make a stream faster (1) or slower (-1), if it has a pace that can be set."""
    if isinstance(stream, Seekable):
        stream.set_speed(_next_step(SPEEDS, stream.position.speed, direction))
    elif isinstance(stream, Adjustable):
        stream.set_interval(_next_step(INTERVALS, stream.interval, -direction))


def seek_by(stream: Stream, seconds: float) -> None:
    """Move a recording by a number of seconds, backward if negative."""
    if isinstance(stream, Seekable):
        stream.seek(stream.position.seconds + seconds)


def _next_step(steps: tuple[float, ...], value: float, direction: int) -> float:
    """The next step above or below a value, or the last one."""
    if direction > 0:
        return next((step for step in steps if step > value), steps[-1])
    return next((step for step in reversed(steps) if step < value), steps[0])
