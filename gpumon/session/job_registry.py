"""The training jobs of this host: read again and again in a thread, with a verdict on each, and alerts about hangs."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from gpumon.health.alerts import DEFAULT_THRESHOLDS, DeviceFinding, Thresholds, hang_finding
from gpumon.session.view_state import JobsState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpumon.core.inbox import Bell
    from gpumon.core.model import Frame
    from gpumon.operations.training_jobs.report import TrainingJobReport
    from gpumon.operations.training_jobs.watcher import JobsReading, JobWatcher
    from gpumon.probe.messages import Answer, Probe
    from gpumon.session.background import RunInBackground
    from gpumon.session.probe_registry import ProbeRegistry

SHOWN_SECONDS: Final = 1.0
STALLED_SECONDS: Final = 1.0
DEFAULT_SECONDS: Final = 5.0
"""Time between two readings while a screen shows the jobs, while a job makes no progress, and otherwise."""
CPU_SHARE: Final = 0.004
_MAX_SECONDS: Final = 20.0
"""While no job is shown or stalled, readings take at most this share of a core, but come at least this often."""
FRAMES_SECONDS: Final = 60.0
_FRAME_SECONDS: Final = 1.0
"""Frames that are kept for a report on a hang: those of this time, one per second at most."""
_MAX_RUNG: Final = 1000


class JobRegistry:
    """The jobs of this host.

    Args:
        in_background: Runs what may block.
        bell: Rung when the jobs were read.
        probes: The probes of this host.
        thresholds: From when on a hang is an alert.
        watcher: Reads the jobs; another one in tests.
        cpu_share: What readings may take of a core while no job is shown or stalled.
    """

    def __init__(
        self,
        in_background: RunInBackground,
        bell: Bell,
        probes: ProbeRegistry,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        watcher: JobWatcher | None = None,
        *,
        cpu_share: float = CPU_SHARE,
    ) -> None:
        self._cpu_share = cpu_share
        self.ring: Callable[[str], None] = lambda _: None
        """Called with a sentence, once for each job that begins to hang."""
        self._in_background = in_background
        self._bell = bell
        self._probes = probes
        self._hang_seconds = thresholds.hang_seconds
        self._watcher = watcher
        probes.on_answer = self._add_answer
        self._state = JobsState()
        self._frozen: JobsState | None = None
        self._is_reading = False
        self._is_stalled = False
        """Whether a job made no progress in the last reading."""
        self._can_hang = True
        """Whether a source showed progress in the last reading: without one, nothing is judged."""
        self._next_at: float | None = None
        self._read_seconds = 0.0
        """CPU time of the last reading: 0.1 s for 250 processes."""
        self._is_shown = False
        self._open_key = ""
        self._newest: Frame | None = None
        self._frames: deque[Frame] = deque(maxlen=int(FRAMES_SECONDS / _FRAME_SECONDS))
        self._rung: dict[str, None] = {}
        """Jobs that hang and for which the bell was rung, oldest first."""

    @property
    def state(self) -> JobsState:
        """The state to draw."""
        return self._frozen or self._state

    def freeze(self, is_frozen: bool) -> None:
        """Keep what is shown as it is now, or resume."""
        self._frozen = self._state if is_frozen else None

    def set_shown(self, is_shown: bool, open_key: str = "") -> None:
        """Set whether a screen shows the jobs, and of which one it shows the ranks."""
        is_new = is_shown and (not self._is_shown or open_key != self._open_key)
        self._is_shown, self._open_key = is_shown, open_key
        if is_new:
            self._next_at = 0.0
            if self._newest is not None:  # the next frame may be minutes away
                self._read_when_due(self._newest)

    def restore(self, reports: tuple[TrainingJobReport, ...]) -> None:
        """Show the jobs of a recording; once there were jobs, none is a reading too."""
        self._state = JobsState(reports, is_read=bool(reports) or self._state.is_read)

    def observe(self, frame: Frame) -> None:
        """Read the jobs with a frame of this host, if it is time for that."""
        self._keep_frame(frame)
        self._newest = frame
        if self._next_at is None:
            self._next_at = frame.monotonic_seconds  # from the second frame on: the first picture does not wait for it
            return
        self._read_when_due(frame)

    def findings(self, _: Frame) -> Iterator[DeviceFinding]:
        """What the alerts report: the jobs that have hung for long enough."""
        for report in self._state.reports:
            if self._hangs(report) and report.verdict is not None:
                yield None, hang_finding(report.title, report.verdict)

    def _read_when_due(self, frame: Frame) -> None:
        if self._is_reading or frame.monotonic_seconds < (self._next_at or 0.0):
            return
        self._is_reading = True
        most = _MAX_SECONDS * CPU_SHARE / self._cpu_share
        rarely = min(max(DEFAULT_SECONDS, self._read_seconds / self._cpu_share), most) if self._can_hang else most
        pause = SHOWN_SECONDS if self._is_shown else STALLED_SECONDS if self._is_stalled else rarely
        self._next_at = frame.monotonic_seconds + pause - frame.interval_seconds / 2
        self._in_background(partial(self._read, frame, self._probes.probes, self._open_key), self._keep)

    def _read(self, frame: Frame, probes: Mapping[int, Probe], open_key: str) -> JobsReading:
        """Read the jobs, in a thread; one reading follows the other."""
        from gpumon.operations.training_jobs.watcher import JobWatcher  # late: the first frame must not wait for it

        if self._watcher is None:
            self._watcher = JobWatcher(self._probes.ask)
        started = time.thread_time()
        reading = self._watcher.read(frame, probes, open_key=open_key)
        self._read_seconds = time.thread_time() - started
        return reading

    def _add_answer(self, answer: Answer) -> None:
        if self._watcher is not None:
            self._watcher.add_answer(answer)

    def _keep(self, reading: JobsReading) -> None:
        self._is_reading, self._is_stalled = False, reading.is_stalled
        ranks = chain.from_iterable(reading.evidence.values())
        self._can_hang = any(rank.progressed_monotonic is not None for rank in ranks)
        self._state = JobsState(reading.reports, is_read=True, frames=tuple(self._frames))
        self._ring_for_hangs()
        if self._is_shown:
            self._bell()

    def _keep_frame(self, frame: Frame) -> None:
        """Keep what a report on a hang needs: the last minute, while there is a job that could hang."""
        if not any(len(report.ranks) > 1 for report in self._state.reports):
            self._frames.clear()
        elif not self._frames or frame.monotonic_seconds >= self._frames[-1].monotonic_seconds + _FRAME_SECONDS:
            self._frames.append(frame)

    def _ring_for_hangs(self) -> None:
        """Ring once for each job that hangs; one that has made progress in between is another hang."""
        hanging = {report.key: report for report in self._state.reports if self._hangs(report)}
        known = {report.key for report in self._state.reports}
        for key in [key for key in self._rung if key in known and key not in hanging]:
            del self._rung[key]
        for key, report in hanging.items():
            if key not in self._rung:
                self._rung[key] = None
                self.ring(f"{report.title} hangs: {report.headline}")
        while len(self._rung) > _MAX_RUNG:
            del self._rung[next(iter(self._rung))]

    def _hangs(self, report: TrainingJobReport) -> bool:
        verdict = report.verdict
        return verdict is not None and verdict.is_hang and (verdict.since_seconds or 0.0) >= self._hang_seconds
