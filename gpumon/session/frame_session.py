"""A stream and what is made of its frames: their store, alerts, the pause, and the silence when none arrive."""

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.core.units import age_text, clock_text
from gpumon.health.alerts import (
    DEFAULT_THRESHOLDS,
    OUT_OF_MEMORY,
    Alert,
    AlertHistory,
    AlertKey,
    DeviceFinding,
    EndedAlert,
    Severity,
    Thresholds,
)
from gpumon.session.costs import STARTED_SECONDS, CallCosts, CostSample, collectors, process_cost
from gpumon.session.pace import source_text
from gpumon.session.view_state import ViewState
from gpumon.streams.base import MAX_WAITING_READINGS, Adjustable, Discontinuity, Seekable, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.session.host_reports import RecordedReports

MIN_SILENCE_SECONDS: Final = 2.5
"""A shorter gap between frames is not reported, however short the interval: a slow sample or a lost packet."""

_RECORDED_BY_STORE: Final = ("gpu_", "xid-")
"""Prefixes of the ids of alerts whose events the store itself records."""
_FRAMES_BEFORE_HISTORY: Final = 2
_NO_FRAME: Final = Frame(0.0, 0.0, 0.0)
_WAITING: Final = Alert(
    "waiting",
    Severity.INFO,
    "Waiting for the first values.",
    "A driver that was not in use takes some seconds to start.",
)


class _Frozen(NamedTuple):
    """What a paused screen shows."""

    frame: Frame
    alerts: tuple[Alert, ...]
    alerts_over: tuple[EndedAlert, ...]


class FrameSession:
    """The frames of one stream.

    Args:
        stream: Source of the frames; started by the caller.
        history_seconds: Length of the history.
        thresholds: The values from which on a metric raises an alert.
    """

    def __init__(
        self,
        stream: Stream,
        history_seconds: float = DEFAULT_HISTORY_SECONDS,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        self.stream = stream
        self.seekable = stream if isinstance(stream, Seekable) else None
        """The stream if it is a recording. It is asked once: Python 3.11 takes 20 µs to find out."""
        self.is_this_host = self.seekable is None and isinstance(stream, Adjustable)
        """Whether the frames come from a collector that gpumon started on this host."""
        self.recorded = None if self.is_this_host else _recorded_reports()
        """The probes and training jobs of a recording."""
        if self.is_this_host:  # the frames of a recording or a pipe, which fill histories, come at once
            stream.inbox.max_readings = MAX_WAITING_READINGS
        self.store = Store(history_seconds=history_seconds)
        self.arrived_at = time.monotonic()
        self.on_frame: list[Callable[[Frame], None]] = []
        """Called with every frame, after it was applied."""
        self.frames_taken = 0
        self.frames_merged = 0
        """Frames that were not drawn, because a newer one had arrived already."""
        self.frames_late = 0
        """Frames whose sample took longer than the interval, so that the next one was late."""
        self.alert_history = AlertHistory(thresholds)
        self.reported: Callable[[Frame], Iterable[DeviceFinding]] = lambda _: ()
        """What is reported from outside the rules at the moment of a frame, as alerts."""
        self._alerts: tuple[Alert, ...] = ()
        self._acknowledged: set[tuple[AlertKey, Severity]] = set()
        """Alerts that the user has acknowledged. One that has ended or has become worse is another one."""
        self._frozen: _Frozen | None = None
        self._has_frame = False
        self._first_frames: list[Frame] | None = [] if self.is_this_host else None
        """The frames until `adopt` is called."""
        self.needs_history = False
        """Whether it is time to read the history from before gpumon was opened."""
        self._is_paused_by_hiding = False
        self._is_filling = False

    @property
    def is_paused(self) -> bool:
        """Whether the screen is paused. A recording itself pauses; live frames still go into the history."""
        return self._frozen is not None if self.seekable is None else self.seekable.position.paused

    def toggle_pause(self) -> None:
        """Pause, or resume."""
        if self.seekable is not None:
            self.seekable.set_paused(not self.seekable.position.paused)
        elif self._frozen is not None:
            self._frozen = None
        elif self.store.frame is not None:
            self._frozen = _Frozen(self.store.frame, self._alerts, tuple(self.alert_history.ended))

    def hide(self) -> None:
        """Pause a recording while another frame session is shown."""
        if self.seekable is not None and not self.is_paused:
            self.seekable.set_paused(True)
            self._is_paused_by_hiding = True

    def unhide(self) -> None:
        """Resume a recording that `hide` has paused."""
        if self.seekable is not None and self._is_paused_by_hiding:
            self.seekable.set_paused(False)
        self._is_paused_by_hiding = False

    def adopt(self, earlier: Store | None) -> None:
        """Continue the history of a store that ends where the frames of this session begin; None for no history."""
        if earlier is not None and self.store.frame is not None:
            for frame in self._first_frames or ():
                if earlier.frame is None or frame.monotonic_seconds > earlier.frame.monotonic_seconds:
                    earlier.apply(frame)
            self.store = earlier
        self._first_frames = None

    def acknowledge(self, alert: Alert) -> None:
        """Leave an alert that stands out of the header from now on, or take that back."""
        self._acknowledged ^= {(alert.key, alert.severity)}

    def drain(self) -> None:
        """Apply every frame that has arrived."""
        arrivals = self.stream.inbox.drain()
        taken_before = self.frames_taken
        for arrival in arrivals:
            if arrival is Discontinuity.REWOUND:
                self.store.clear()
                self.alert_history.clear()
                self.recorded = None if self.recorded is None else _recorded_reports()
            elif isinstance(arrival, Frame):
                self.store.apply(arrival)
                if self._first_frames is not None:
                    self._first_frames.append(arrival)
                    self.needs_history |= len(self._first_frames) == _FRAMES_BEFORE_HISTORY
                if self.recorded is not None:
                    self.recorded.observe(arrival)
                self._check_alerts(arrival)
                for callback in tuple(self.on_frame):
                    callback(arrival)
                self.frames_taken += 1
                self.frames_late += (arrival.sweep.seconds or 0.0) > arrival.interval_seconds
        self.frames_merged += max(0, self.frames_taken - taken_before - 1)
        if arrivals:
            self.arrived_at = time.monotonic()
            self._is_filling = arrivals[-1] is Discontinuity.CONTINUED

    @property
    def silence_seconds(self) -> float:
        """How long no frame has arrived, if that is too long; otherwise, and for a recording, 0."""
        frame = self.store.frame
        if frame is None or self.seekable is not None or self._frozen is not None:
            return 0.0
        silence = time.monotonic() - self.arrived_at
        expected = max(frame.interval_seconds, frame.sweep.seconds or 0.0)
        return silence if silence > max(1.5 * expected + 0.5, MIN_SILENCE_SECONDS) else 0.0

    def view_state(self) -> ViewState | None:
        """The state to draw, without workloads, probes and costs.

        Returns:
            None while the screen keeps what it shows: after a jump in time, until the frame to show arrives.
        """
        frame = self.store.frame if self._frozen is None else self._frozen.frame
        if self._has_frame and (frame is None or self._is_filling):
            return None
        self._has_frame = frame is not None
        silence = self.silence_seconds
        return ViewState(
            store=self.store,
            frame=frame or _NO_FRAME,
            alerts=self._shown_alerts(frame, silence),
            source=source_text(self.stream, frame, paused=self.is_paused),
            position="" if self.seekable is None else clock_text(self.seekable.position.seconds),
            silence_seconds=silence,
            is_this_host=self.is_this_host,
            alerts_over=tuple(self.alert_history.ended) if self._frozen is None else self._frozen.alerts_over,
            thresholds=self.alert_history.thresholds,
            is_paused=self.is_paused,
        )

    def _check_alerts(self, frame: Frame) -> None:
        """Apply the rules to a frame; each start and end of an alert above info is an event of its device."""
        reported = self.reported if self.recorded is None else self.recorded.findings
        self._alerts = tuple(self.alert_history.check(frame, reported(frame)))
        self._acknowledged.intersection_update([(alert.key, alert.severity) for alert in self._alerts])
        for alert, has_begun in self.alert_history.changes:
            history = self.store.of_device(alert.device_key or "")
            if history is not None and not alert.id.startswith(_RECORDED_BY_STORE):
                if alert.id == OUT_OF_MEMORY and not has_begun:
                    continue  # it was over at once; only its alert was kept
                text = alert.title if has_begun else f"{alert.title}: over"
                history.note(frame.monotonic_seconds, HistoryEventKind.DEVICE, text)

    def _shown_alerts(self, frame: Frame | None, silence: float) -> tuple[Alert, ...]:
        """All alerts that stand, with those that are acknowledged marked."""
        alerts = self._standing_alerts(frame, silence)
        if not self._acknowledged:
            return alerts
        return tuple(
            replace(alert, is_acknowledged=(alert.key, alert.severity) in self._acknowledged) for alert in alerts
        )

    def costs(self, terminal_bytes: int | None) -> CostSample:
        """The costs of gpumon up to now.

        Args:
            terminal_bytes: Bytes sent to the terminal up to now.
        """
        now, pid, frame = time.monotonic(), os.getpid(), self.store.frame
        own_collectors = map(process_cost, collectors(pid))
        return CostSample(
            at_seconds=now,
            running_seconds=now - STARTED_SECONDS,
            own=process_cost(pid),
            collectors=tuple(cost for cost in own_collectors if cost is not None),
            frames_taken=self.frames_taken,
            frames_merged=self.frames_merged,
            frames_lost=self.stream.inbox.lost,
            terminal_bytes=terminal_bytes,
            frames_late=self.frames_late,
            calls=CallCosts() if frame is None else CallCosts(frame.monotonic_seconds, frame.sweep.calls_by_name),
        )

    def _standing_alerts(self, frame: Frame | None, silence: float) -> tuple[Alert, ...]:
        problem = self.stream.problem
        first: tuple[Alert, ...] = ()
        if problem is not None:
            first = (Alert(problem.code.value, Severity.CRITICAL, problem.reason, problem.remedy),)
        elif frame is None:
            first = (_WAITING,)
        elif silence:
            title = f"No values for {age_text(silence)}: the collector, or the link to it, is silent."
            first = (Alert("silence", Severity.CRITICAL, title, "Every value on the screen is older by this much."),)
        if frame is None:
            return first
        return first + (self._alerts if self._frozen is None else self._frozen.alerts)


def _recorded_reports() -> "RecordedReports":
    from gpumon.session.host_reports import RecordedReports  # late: the first values of this host must not wait for it

    return RecordedReports()
