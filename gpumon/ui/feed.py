"""A stream with all that is made of its frames: their store, alerts, the pause, and silence when none come."""

import time
from collections.abc import Callable
from typing import Final

from gpumon.core.durations import HISTORY_SECONDS
from gpumon.core.episodes import EventKind
from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.core.units import age_text
from gpumon.diagnosis.health import DEFAULTS, Alert, HealthHistory, Severity, Thresholds
from gpumon.streams.base import Adjustable, Rewound, Seekable, Stream
from gpumon.ui.scene import Scene
from gpumon.ui.source import source_text

SILENCE_SECONDS: Final = 2.5
"""Silence shorter than this is none, however short the interval: a slow sweep or a lost packet."""

_NOTED_BY_STORE: Final = ("gpu_", "xid-")
"""How the ids of those alerts begin whose events the store itself notes."""
_NO_FRAME: Final = Frame(0.0, 0.0, 0.0)
_WAITING: Final = Alert(
    "waiting",
    Severity.INFO,
    "Waiting for the first values.",
    "A driver that was not in use takes some seconds to start.",
)


class Feed:
    """What a screen is drawn from.

    Args:
        stream: Where frames come from; started by the caller.
        history_seconds: How much is remembered.
        thresholds: From which values on a figure deserves attention.
    """

    def __init__(
        self, stream: Stream, history_seconds: float = HISTORY_SECONDS, thresholds: Thresholds = DEFAULTS
    ) -> None:
        self.stream = stream
        self.store = Store(history_seconds=history_seconds)
        self.arrived_at = time.monotonic()
        self.on_frame: list[Callable[[Frame], None]] = []
        """Are told every frame that has been taken in."""
        self.frames_taken = 0
        self.frames_merged = 0
        """Frames that nothing was drawn of, because a newer one had come already."""
        self.frames_late = 0
        """Frames whose reading took longer than the interval, so that the next one came late."""
        self.health = HealthHistory(thresholds)
        self._alerts: list[Alert] = []
        self._paused_frame: Frame | None = None
        self._paused_alerts: list[Alert] = []
        self._has_begun = False
        self._paused_by_hiding = False

    @property
    def paused(self) -> bool:
        """Whether the screen stands still; a recording itself stops, live frames go on being taken in."""
        return self.stream.position.paused if isinstance(self.stream, Seekable) else self._paused_frame is not None

    def toggle_pause(self) -> None:
        """Stops, or goes on."""
        if isinstance(self.stream, Seekable):
            self.stream.set_paused(not self.stream.position.paused)
        else:
            self._paused_frame = self.store.frame if self._paused_frame is None else None
            self._paused_alerts = self._alerts

    def hide(self) -> None:
        """Another feed is shown: a recording waits meanwhile."""
        if isinstance(self.stream, Seekable) and not self.paused:
            self.stream.set_paused(True)
            self._paused_by_hiding = True

    def unhide(self) -> None:
        """It is shown again."""
        if isinstance(self.stream, Seekable) and self._paused_by_hiding:
            self.stream.set_paused(False)
        self._paused_by_hiding = False

    def take(self) -> None:
        """Takes in every frame that waits."""
        arrivals = self.stream.inbox.drain()
        before = self.frames_taken
        for arrival in arrivals:
            if isinstance(arrival, Rewound):
                self.store.clear()
                self.health.clear()
            else:
                self.store.apply(arrival)
                self._check_health(arrival)
                for tell in tuple(self.on_frame):
                    tell(arrival)
                self.frames_taken += 1
                self.frames_late += (arrival.sweep.seconds or 0.0) > arrival.interval_seconds
        self.frames_merged += max(0, self.frames_taken - before - 1)
        if arrivals:
            self.arrived_at = time.monotonic()

    @property
    def is_this_machine(self) -> bool:
        """Whether frames come from a collector that gpumon started here; only that one takes another interval."""
        return isinstance(self.stream, Adjustable) and not isinstance(self.stream, Seekable)

    @property
    def silence_seconds(self) -> float:
        """How long no frame has come, if that is longer than it should be; 0 otherwise, and for a recording."""
        frame = self.store.frame
        if frame is None or isinstance(self.stream, Seekable) or self._paused_frame is not None:
            return 0.0
        silence = time.monotonic() - self.arrived_at
        expected = max(frame.interval_seconds, frame.sweep.seconds or 0.0)
        return silence if silence > max(1.5 * expected + 0.5, SILENCE_SECONDS) else 0.0

    def scene(self) -> Scene | None:
        """What is to be drawn, or None when what is drawn stays: time jumped, and the next frame is not there yet."""
        frame = self._paused_frame or self.store.frame
        if frame is None and self._has_begun:
            return None
        self._has_begun = frame is not None
        silence = self.silence_seconds
        return Scene(
            store=self.store,
            frame=frame or _NO_FRAME,
            alerts=tuple(self._alerts_of(frame, silence)),
            source=source_text(self.stream, frame, paused=self.paused),
            silence_seconds=silence,
            is_this_machine=self.is_this_machine,
            alerts_over=tuple(self.health.over),
            thresholds=self.health.limits,
        )

    def _check_health(self, frame: Frame) -> None:
        """Lets the rules look at a frame; what begins or ends above information is an event of its device."""
        self._alerts = self.health.check(frame)
        for alert, has_begun in self.health.changes:
            history = self.store.of_device(alert.device_key or "")
            if history is not None and not alert.id.startswith(_NOTED_BY_STORE):
                text = alert.title if has_begun else f"{alert.title}: over"
                history.note(frame.monotonic_seconds, EventKind.DEVICE, text)

    def _alerts_of(self, frame: Frame | None, silence: float) -> list[Alert]:
        problem = self.stream.problem
        if problem is not None:
            first = [Alert(problem.code.value, Severity.CRITICAL, problem.reason, problem.remedy)]
        elif frame is None:
            first = [_WAITING]
        elif silence:
            said = f"No values for {age_text(silence)}: the collector, or the link to it, is silent."
            first = [Alert("silence", Severity.CRITICAL, said, "All that is shown is as old.")]
        else:
            first = []
        if frame is None:
            return first
        return first + (self._alerts if self._paused_frame is None else self._paused_alerts)
