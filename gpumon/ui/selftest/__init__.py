"""The headless selftest: a pilot opens every screen of the real app, presses its keys, and checks what it shows.

It works with live values of this host or with a recording, and presses only keys without an effect outside gpumon.
"""

import asyncio
from pathlib import Path
from typing import Final

from gpumon.diagnosis.checks import Check, Status, document
from gpumon.operations.doctor.examination import DoctorOptions
from gpumon.streams.base import Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.selftest import keys, screens
from gpumon.ui.selftest.walk import Step, Walk

__all__ = ["Check", "Status", "document", "selftest"]

TIMEOUT_SECONDS: Final = 40.0
STEPS: Final[tuple[tuple[str, Step], ...]] = (
    ("values", screens.values),
    ("overview", screens.overview),
    ("device", screens.device),
    ("memory", screens.memory),
    ("process", screens.process),
    ("cost", screens.cost),
    ("alerts", screens.alerts),
    ("help", screens.help_page),
    ("explain", screens.explain),
    ("doctor", screens.doctor),
    ("workloads", screens.workloads),
    ("palette", screens.palette),
    ("pause", keys.pause),
    ("pace", keys.pace),
    ("seek", keys.seek),
    ("themes", keys.themes),
    ("sizes", keys.sizes),
)


async def selftest(stream: Stream, size: tuple[int, int], theme: str, pictures: Path | None) -> list[Check]:
    """Run all checks; ends within `TIMEOUT_SECONDS`, whatever hangs.

    Args:
        stream: Source of the frames; started by the caller, closed at the end.
        size: Columns and rows.
        theme: Theme of the app.
        pictures: Folder for a picture of each screen, or None.
    """
    app = GpumonApp(stream, theme=theme)
    app.doctor_options = DoctorOptions(tests_gpus=False)
    walk = Walk(app, stream, size, pictures)
    try:
        await asyncio.wait_for(_run(walk), TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        walk.checks.append(Check("deadline", Status.FAIL, f"not finished after {TIMEOUT_SECONDS:.0f} s"))
    finally:
        app.session.close()
    return walk.checks


async def _run(walk: Walk) -> None:
    """Run every step in turn; a failed step does not end the selftest, but nothing can be checked without frames."""
    async with walk.running():
        await walk.check("frames", screens.frames)
        if walk.checks[-1].status is Status.OK:
            for name, step in STEPS:
                await walk.check(name, step)
