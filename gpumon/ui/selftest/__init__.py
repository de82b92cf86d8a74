"""The headless test mode: a pilot walks the real app over every screen and key, and checks what it finds.

It works on this machine's live data or on a recording, and presses only keys that have no effect outside gpumon.
"""

import asyncio
from pathlib import Path
from typing import Final

from gpumon.diagnosis.checks import Check, Status, document
from gpumon.operations.doctor.examination import Wish
from gpumon.streams.base import Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.selftest import figures, keys, screens
from gpumon.ui.selftest.walk import Step, Walk

__all__ = ["Check", "Status", "document", "selftest"]

DEADLINE_SECONDS: Final = 40.0
STEPS: Final[tuple[tuple[str, Step], ...]] = (
    ("values", figures.values),
    ("overview", screens.overview),
    ("device", screens.device),
    ("memory", screens.memory),
    ("process", screens.process),
    ("cost", screens.cost),
    ("health", screens.health),
    ("help", screens.help_page),
    ("explain", screens.explain),
    ("doctor", screens.doctor),
    ("workloads", screens.workloads),
    ("pause", keys.pause),
    ("pace", keys.pace),
    ("seek", keys.seek),
    ("themes", keys.themes),
    ("sizes", keys.sizes),
)


async def selftest(stream: Stream, size: tuple[int, int], theme: str, pictures: Path | None) -> list[Check]:
    """Walks the app and returns the checks; ends within `DEADLINE_SECONDS` whatever hangs.

    Args:
        stream: Where frames come from; started by the caller, and closed in the end.
        size: Columns and rows.
        theme: The app's theme.
        pictures: Folder in which a picture of each screen is saved, or None.
    """
    app = GpumonApp(stream, theme=theme)
    app.doctor_wish = Wish(tries_gpus=False)
    walk = Walk(app, stream, size, pictures)
    try:
        await asyncio.wait_for(_walk(walk), DEADLINE_SECONDS)
    except asyncio.TimeoutError:
        walk.checks.append(Check("deadline", Status.FAIL, f"not done after {DEADLINE_SECONDS:.0f} s"))
    finally:
        app.close_streams()
    return walk.checks


async def _walk(walk: Walk) -> None:
    """Makes every check in turn; one that fails does not end the walk, but without frames there is none."""
    async with walk.begun():
        await walk.check("frames", figures.frames)
        if walk.checks[-1].status is Status.OK:
            for name, step in STEPS:
                await walk.check(name, step)
