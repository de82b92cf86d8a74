"""One look at this machine and at the probes in its processes."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.operations.status import look
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.news import Probe
from gpumon.streams.base import Stream

PROBE_SECONDS: Final = 0.5
"""A probe that has not told anything by then, its process being in a long call, is left out."""


class Sight(NamedTuple):
    """What was seen.

    Attributes:
        frame: The machine.
        probes: The probes that have told something, by PID as gpumon sees it.
        problems: Why some were not listened to.
    """

    frame: Frame
    probes: Mapping[int, Probe]
    problems: tuple[Problem, ...] = ()


def look_with_probes(stream: Stream | None = None, folders: Iterable[Path] | None = None) -> Sight:
    """The state of this machine and of its probes; where there are none, it takes no longer than without them.

    Raises:
        CommandError: The collector did not bring a single frame.
    """
    watcher = ProbeWatcher(folders)
    deadline = time.monotonic() + PROBE_SECONDS
    watcher.start()
    try:
        frame = look(stream)
        watcher.settle(deadline - time.monotonic())
        return Sight(frame, watcher.probes, watcher.problems)
    finally:
        watcher.close()
