"""The keys that open no screen, and sizes."""

from typing import Final

from gpumon.diagnosis.checks import FailedError, SkippedError
from gpumon.streams.base import Adjustable, Seekable
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.selftest.walk import Walk

SIZES: Final = ((80, 24), (300, 100), (60, 10), (20, 5))


async def pause(walk: Walk) -> str:
    """Space stops, and goes on."""
    await walk.pilot.press("space")
    paused = walk.app.feed.paused
    await walk.pilot.press("space")
    if not paused or walk.app.feed.paused:
        raise FailedError("space does not stop and go on")
    return "stopped and went on"


async def pace(walk: Walk) -> str:
    """Plus and minus change the interval or the speed, and change it back."""
    before = _pace(walk)
    await walk.pilot.press("plus")
    faster = _pace(walk)
    await walk.pilot.press("minus")
    if faster == before or _pace(walk) != before:
        raise FailedError(f"+ and - went from {before:g} over {faster:g} to {_pace(walk):g}")
    return f"{before:g} to {faster:g} and back"


async def seek(walk: Walk) -> str:
    """A recording can be sought in."""
    if not isinstance(walk.stream, Seekable):
        raise SkippedError("live frames cannot be sought in")
    await walk.pilot.press("full_stop", "comma")
    await walk.pilot.pause(0.2)
    return f"at {walk.stream.position.seconds:.0f} s"


async def themes(walk: Walk) -> str:
    """The key for themes goes over all of them."""
    seen = [walk.app.theme]
    for _ in range(3):
        await walk.pilot.press("t")
        seen.append(walk.app.theme)
    if len(set(seen)) != 3 or seen[0] != seen[-1]:
        raise FailedError(f"t went over {', '.join(seen)}")
    return ", ".join(seen[:-1])


async def sizes(walk: Walk) -> str:
    """The app bears any size."""
    for columns, rows in (*SIZES, walk.size):
        await walk.pilot.resize_terminal(columns, rows)
        await walk.pilot.pause(0.05)
    walk.expect(OverviewScreen)
    return ", ".join(f"{columns}x{rows}" for columns, rows in SIZES)


def _pace(walk: Walk) -> float:
    if isinstance(walk.stream, Seekable):
        return walk.stream.position.speed
    return walk.stream.interval if isinstance(walk.stream, Adjustable) else 0.0
