"""The headless selftest: a pilot opens every screen of the real app, presses its keys, and checks what it shows.

It works with live values of this host or with a recording, and presses only keys without an effect outside gpumon.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon.health.checks import Check, Status, document
from gpumon.operations.doctor.examination import DoctorOptions
from gpumon.present.palette import Palette
from gpumon.streams.base import Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.selftest import keys, screens
from gpumon.ui.selftest.tour import recording_step
from gpumon.ui.selftest.walk import Pictures, Step, Walk

if TYPE_CHECKING:
    from gpumon.fleet.settings import FleetSource

__all__ = ["Check", "Pictures", "Status", "document", "selftest"]

TIMEOUT_SECONDS: Final = 180.0
"""On a quiet host, it takes 25 s; on one with other programs on all cores, more than 90."""
MOVIE_SECONDS: Final = 40.0
STEPS: Final[tuple[tuple[str, Step], ...]] = (
    ("values", screens.values),
    ("overview", screens.overview),
    ("device", screens.device),
    ("memory", screens.memory),
    ("process", screens.process),
    ("processes", screens.processes),
    ("jobs", screens.jobs),
    ("why", screens.why),
    ("cost", screens.cost),
    ("topology", screens.topology),
    ("alerts", screens.alerts),
    ("fleet", screens.fleet),
    ("help", screens.help_page),
    ("explain", screens.explain),
    ("doctor", screens.doctor),
    ("workloads", screens.workloads),
    ("palette", screens.palette),
    ("digits", keys.digits),
    ("pause", keys.pause),
    ("pace", keys.pace),
    ("seek", keys.seek),
    ("themes", keys.themes),
    ("sizes", keys.sizes),
)


async def selftest(
    stream: Stream,
    size: tuple[int, int],
    theme: str,
    pictures: Pictures | None,
    user_palettes: Sequence[Palette] = (),
    *,
    movie: Path | None = None,
    fleet: "FleetSource | None" = None,
) -> list[Check]:
    """Run all checks; ends within `TIMEOUT_SECONDS`, whatever hangs, or `MOVIE_SECONDS` later with a movie.

    Args:
        stream: Source of the frames; started by the caller, closed at the end.
        size: Columns and rows.
        theme: Theme of the app.
        pictures: Where to save pictures of which screens, or None.
        user_palettes: The colors of the user's themes.
        movie: File for a moving picture of a tour, or None.
        fleet: The Prometheus or the hosts to read, or None.
    """
    app = GpumonApp(stream, theme=theme, user_palettes=user_palettes, fleet=fleet, load_probe="never")
    app.navigation.doctor_options = DoctorOptions(tests_gpus=False)
    walk = Walk(app, stream, size, pictures)
    steps, deadline = STEPS, TIMEOUT_SECONDS
    if movie is not None:
        steps, deadline = (*STEPS, ("movie", recording_step(movie))), TIMEOUT_SECONDS + MOVIE_SECONDS
    try:
        await asyncio.wait_for(_run(walk, steps), deadline)
    except asyncio.TimeoutError:
        walk.checks.append(Check("deadline", Status.FAIL, f"not finished after {deadline:.0f} s"))
    finally:
        app.session.close()
    return walk.checks


async def _run(walk: Walk, steps: Sequence[tuple[str, Step]]) -> None:
    """Run every step in turn; a failed step does not end the selftest, but nothing can be checked without frames."""
    async with walk.running():
        await walk.check("frames", screens.frames)
        if walk.checks[-1].status is Status.OK:
            for name, step in steps:
                await walk.check(name, step)
