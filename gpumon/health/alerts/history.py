"""Alerts over time: since when each stands, without flicker, and which have ended."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.health.alerts.model import Alert, AlertFinding, AlertKey, Severity, make_alert
from gpumon.health.alerts.rule import CLEAR_SECONDS, DEFAULT_THRESHOLDS, AlertRule, Thresholds
from gpumon.health.alerts.rules import device_findings, host_findings, track, worst_first

if TYPE_CHECKING:
    from gpumon.health.alerts.tracking import DeviceTracker

UNKNOWN_SECONDS: Final = 60.0
"""How long a warning stands while its rule cannot be checked, because something that it needs is missing."""
MAX_GAP_SECONDS: Final = 30.0
"""A condition does not hold without a break across a gap between frames that is longer than this."""
_MAX_GAP_INTERVALS: Final = 3.0
"""A gap may have this many intervals where that is longer, as when frames are requested less often."""
_MAX_ENDED: Final = 200
_FORGET_SECONDS: Final = 600.0
_MINUTE: Final = 60.0


DeviceFinding = tuple[Device | None, AlertFinding]
"""What was found, and on which device; None for the host."""


class EndedAlert(NamedTuple):
    """An alert that has ended.

    Attributes:
        alert: Its last state.
        ended_seconds: Unix time of its end.
    """

    alert: Alert
    ended_seconds: float


class AlertChange(NamedTuple):
    """The beginning or the end of a warning or critical alert."""

    alert: Alert
    has_begun: bool


@dataclass(slots=True)
class _Standing:
    """An alert that stands, or that will stand when its condition has held for long enough.

    Attributes:
        alert: Its latest state.
        rule: The rule that raised it; None for what is reported from outside the rules.
        begin_seconds: When the condition was first found, in monotonic seconds; breaks that are shorter than the time
            in which the alert would end do not count.
        found_seconds: When it was last found.
        must_not_break: Whether a break before it is shown makes its condition begin again.
        is_shown: Whether it has held for long enough.
    """

    alert: Alert
    rule: AlertRule | None
    begin_seconds: float
    found_seconds: float
    must_not_break: bool
    is_shown: bool = False

    @property
    def is_loud(self) -> bool:
        """Whether it is shown, as a warning or critical alert."""
        return self.is_shown and self.alert.severity is not Severity.INFO

    def show_if_held(self, finding: AlertFinding, now: float, *, is_first_frame: bool) -> None:
        """Show it once its condition has held for long enough; the first frame shows what a one-shot command shows."""
        hold_seconds = 0.0 if self.rule is None or is_first_frame else self.rule.hold_seconds
        self.is_shown = self.is_shown or now - self.begin_seconds >= max(hold_seconds, finding.after_seconds)

    def keep_seconds(self, device: Device | None, frame: Frame, thresholds: Thresholds) -> float:
        """How long it stands without being found: longer where its rule cannot be checked."""
        if self.rule is None:
            return 0.0
        is_responding = device is not None and device.state is DeviceState.OK
        if self.alert.severity is Severity.INFO and not is_responding:
            return 0.0  # what was normal before is of no interest on a GPU that is lost
        if device is None or not self.rule.is_checkable(device, thresholds, has_readings=frame.is_fresh(device)):
            return UNKNOWN_SECONDS if self.is_loud else CLEAR_SECONDS
        return 0.0 if self.must_not_break and not self.is_shown else self.rule.clear_seconds


class AlertHistory:
    """Records since when each alert stands. A value that comes and goes neither raises an alert again nor softens it.

    Attributes:
        ended: Warnings and critical alerts that have ended, oldest first.
        changes: Those that began or ended with the latest frame.
    """

    def __init__(self, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> None:
        self.thresholds = thresholds
        self.ended: deque[EndedAlert] = deque(maxlen=_MAX_ENDED)
        self.changes: list[AlertChange] = []
        self._trackers: dict[str, DeviceTracker] = {}
        self._standing: dict[AlertKey, _Standing] = {}
        self._latest_seconds: float | None = None
        self._is_first_frame = False
        self._has_gap = False
        """Whether the time since the latest frame is so long that no condition holds across it."""

    def clear(self) -> None:
        """Forgets everything."""
        self.ended.clear()
        self.changes = []
        self._trackers.clear()
        self._standing.clear()
        self._latest_seconds = None

    def check(self, frame: Frame, reported: Iterable[DeviceFinding] = ()) -> list[Alert]:
        """Checks a frame. A frame from an earlier time starts over.

        ``reported`` comes from outside the rules, such as from probes; it ends when it is not reported.

        Returns:
            The alerts that stand, worst first.
        """
        now = frame.monotonic_seconds
        if self._latest_seconds is not None and now < self._latest_seconds:
            self.clear()
        max_gap = max(MAX_GAP_SECONDS, _MAX_GAP_INTERVALS * frame.interval_seconds)
        self._is_first_frame = self._latest_seconds is None
        self._has_gap = self._latest_seconds is not None and now - self._latest_seconds > max_gap
        self._latest_seconds = now
        self.changes = []
        current: set[AlertKey] = set()
        for finding in host_findings(frame):
            current.add(self._record(finding, None, None, frame))
        for device, finding in reported:
            current.add(self._record(finding, device, None, frame))
        if "driver" not in frame.problems:
            for device, rule, finding in self._findings(frame):
                current.add(self._record(finding, device, rule, frame))
        if len(current) < len(self._standing):
            self._end_absent(current, frame)
        return worst_first([standing.alert for standing in self._standing.values() if standing.is_shown])

    def _findings(self, frame: Frame) -> Iterator[tuple[Device, AlertRule, AlertFinding]]:
        """What the rules find on every device."""
        trackers = track(self._trackers, frame)
        standing: dict[str | None, list[str]] = {}
        for key, alert in self._standing.items():
            if alert.is_shown and alert.rule is not None:
                standing.setdefault(key[0], []).append(alert.rule.label)
        for device in frame.gpus:
            tracker = trackers[device.key]
            tracker.forget_xids(tracker.now - self.thresholds.xid_minutes * _MINUTE)
            has_readings = frame.is_fresh(device)
            labels = standing.get(device.key, ())
            for rule, finding in device_findings(
                device, tracker, self.thresholds, has_readings=has_readings, standing=labels
            ):
                yield device, rule, finding
        if len(trackers) > len(frame.devices):
            oldest = frame.monotonic_seconds - _FORGET_SECONDS
            for gone in [key for key, tracker in trackers.items() if tracker.now < oldest]:
                del trackers[gone]

    def _record(self, finding: AlertFinding, device: Device | None, rule: AlertRule | None, frame: Frame) -> AlertKey:
        """Records that a condition was found."""
        now = frame.monotonic_seconds
        key = (None if device is None else device.key, finding.id, finding.subject)
        standing = self._standing.get(key)
        if standing is None or (self._has_gap and not standing.is_shown):
            alert = make_alert(finding, device, frame.time_seconds - finding.age_seconds)
            standing = self._standing[key] = _Standing(alert, rule, now, now, finding.after_seconds > 0)
        before, was_loud = standing.alert, standing.is_loud
        if before.severity.rank < finding.severity.rank:
            finding = finding._replace(severity=before.severity)
        standing.alert = make_alert(finding, device, before.since_seconds)
        standing.found_seconds = now
        standing.show_if_held(finding, now, is_first_frame=self._is_first_frame)
        if standing.is_loud and not was_loud:
            self.changes.append(AlertChange(standing.alert, has_begun=True))
        return key

    def _end_absent(self, current: set[AlertKey], frame: Frame) -> None:
        """Ends the alerts whose condition has been absent for long enough."""
        now = frame.monotonic_seconds
        devices = {} if "driver" in frame.problems else {device.key: device for device in frame.devices}
        for key, standing in list(self._standing.items()):
            device = devices.get(key[0] or "")
            absent_seconds = now - standing.found_seconds
            if key in current or absent_seconds < standing.keep_seconds(device, frame, self.thresholds):
                continue
            del self._standing[key]
            if standing.is_loud:
                self.changes.append(AlertChange(standing.alert, has_begun=False))
                self.ended.append(EndedAlert(standing.alert, frame.time_seconds))
