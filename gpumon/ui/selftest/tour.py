"""A tour through the screens, recorded as a moving picture."""

from pathlib import Path
from typing import Final, NamedTuple

from textual.events import Paste

from gpumon.core.new_files import replace_file
from gpumon.health.checks import FailedError
from gpumon.present.explain import SAMPLE
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.selftest.movie import Scene, movie
from gpumon.ui.selftest.walk import Step, Walk
from gpumon.workload_runs.interpreter import Interpreter

MAX_BYTES: Final = 2_000_000
"""A larger picture takes long to load on a page."""
_SECONDS_PER_STOP: Final = 1.0
"""Time for a screen to load, and for the values to go on between two scenes."""
_PYTHON: Final = Interpreter(Path("/opt/train/bin/python"), "VIRTUAL_ENV")
"""A picture must not show the paths of the host on which it was made."""


class Stop(NamedTuple):
    """One scene.

    Attributes:
        caption: The key and what it shows, for the title of the window.
        keys: The keys that lead to it from the stop before.
        pasted: Text to paste in Explain.
    """

    caption: str
    keys: tuple[str, ...]
    pasted: str = ""


STOPS: Final = (
    Stop("1  every GPU, who uses it, and since when it is idle", ("1",)),
    Stop("s  sort by a column", ("s",)),
    Stop("enter  one GPU over time", ("escape", "home", *["down"] * 5, "enter")),
    Stop("←  the values at a moment", ("left",) * 12),
    Stop("6  what is wrong, since when, and what to do", ("6",)),
    Stop("7  paste an error: what it means, and how to fix it", ("7",), SAMPLE),
    Stop("4  training jobs: which rank hangs, and where", ("4",)),
    Stop("3  where the memory of a GPU is, to the byte", ("3",)),
    Stop("5  programs that measure what the host can do", ("5",)),
    Stop("?  every key and word of a screen", ("escape", "1", "question_mark")),
    Stop("T  themes", ("escape", "T")),
)


def recording_step(path: Path) -> Step:
    """The step of the selftest that writes the tour to a file."""

    async def record(walk: Walk) -> str:
        """Every stop is reached, and the picture has a size that a page can load."""
        theme = walk.app.theme
        walk.app.session.workloads.interpreter = _PYTHON
        walk.table("devices").cursor = 0
        scenes = [await _scene(walk, stop) for stop in STOPS]
        await walk.pilot.press("escape")
        walk.app.theme = theme
        walk.expect(OverviewScreen)
        if len({scene.svg for scene in scenes}) < len(STOPS):
            raise FailedError("a key changed nothing")
        picture = movie(scenes).encode()
        if len(picture) > MAX_BYTES:
            raise FailedError(f"{len(picture)} bytes are more than {MAX_BYTES}")
        replace_file(path, picture, 0o666)
        return f"{len(scenes)} scenes, {len(picture) / 1000:.0f} kB"

    return record


async def _scene(walk: Walk, stop: Stop) -> Scene:
    await walk.pilot.press(*stop.keys)
    if stop.pasted:
        screen = walk.expect(ExplainScreen)
        walk.app.post_message(Paste(stop.pasted))
        await walk.wait(lambda: screen.explanation is not None, 10 * _SECONDS_PER_STOP)
    await walk.pilot.pause(_SECONDS_PER_STOP)
    return Scene(stop.caption, walk.app.picture())
