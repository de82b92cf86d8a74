"""Keys that open no screen, and sizes of the terminal."""

from typing import Final

from textual.widgets import TextArea

from gpumon.health.checks import FailedError, SkippedError
from gpumon.present.top_line import TABS
from gpumon.streams.base import Adjustable, Seekable
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.selftest.walk import Walk

_THEMES: Final = 4
SIZES: Final = ((80, 24), (300, 100), (60, 10), (20, 5))


async def pause(walk: Walk) -> str:
    """Space pauses and resumes."""
    await walk.pilot.press("space")
    is_paused = walk.app.session.shown.is_paused
    await walk.pilot.press("space")
    if not is_paused or walk.app.session.shown.is_paused:
        raise FailedError("space does not pause and resume")
    return "paused and resumed"


async def digits(walk: Walk) -> str:
    """Each digit opens its screen in place of the one before, and esc leads back to the overview."""
    tabs = [tab for tab in TABS if tab.name != "Fleet" or walk.app.session.fleet is not None]
    for tab in tabs:
        await walk.pilot.press(tab.key)
        await walk.pilot.pause(0.05)
        screen = walk.app.screen
        if not isinstance(screen, ViewScreen) or tab.name != screen.TAB:
            raise FailedError(f"{tab.key} opened {type(screen).__name__}")
        if isinstance(screen.focused, TextArea):
            await walk.pilot.press("escape")  # a text area takes digits as text
    await walk.pilot.press("escape")
    await walk.pilot.pause(0.05)
    walk.expect(OverviewScreen)
    return " ".join(tab.key for tab in tabs)


async def pace(walk: Walk) -> str:
    """Plus and minus change the interval or the speed."""
    before = _pace(walk)
    await walk.pilot.press("plus")
    faster = _pace(walk)
    await walk.pilot.press("minus")
    if faster == before or _pace(walk) != before:
        raise FailedError(f"+ and - changed the pace from {before:g} to {faster:g} and to {_pace(walk):g}")
    return f"{before:g} to {faster:g} and back"


async def seek(walk: Walk) -> str:
    """Full stop and comma seek in a recording."""
    if not isinstance(walk.stream, Seekable):
        raise SkippedError("there is no seeking in live frames")
    await walk.pilot.press("full_stop", "comma")
    await walk.pilot.pause(0.2)
    return f"at {walk.stream.position.seconds:.0f} s"


async def themes(walk: Walk) -> str:
    """The key for themes shows one after the other, and esc leads back to the first."""
    names = walk.app.theme_names
    seen = [walk.app.theme]
    for _ in range(_THEMES):
        await walk.pilot.press("T")
        seen.append(walk.app.theme)
    await walk.pilot.press("escape")
    start = names.index(seen[0])
    if seen != (names * 2)[start : start + _THEMES + 1] or walk.app.theme != seen[0]:
        raise FailedError(f"T switched to {', '.join(seen)}")
    return f"{len(names)} themes"


async def sizes(walk: Walk) -> str:
    """The app works in any size."""
    for columns, rows in (*SIZES, walk.size):
        await walk.pilot.resize_terminal(columns, rows)
        await walk.pilot.pause(0.05)
    walk.expect(OverviewScreen)
    return ", ".join(f"{columns}x{rows}" for columns, rows in SIZES)


def _pace(walk: Walk) -> float:
    if isinstance(walk.stream, Seekable):
        return walk.stream.position.speed
    return walk.stream.interval if isinstance(walk.stream, Adjustable) else 0.0
