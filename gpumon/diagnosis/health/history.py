"""Alerts over time: since when each stands, without flicker, and which are over."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.model import Device, Frame
from gpumon.diagnosis.health.alert import Alert, Finding, Severity, alert_of
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import CLEAR_SECONDS, Rule
from gpumon.diagnosis.health.rules import device_findings, remember, worst_first
from gpumon.diagnosis.health.state import machine_findings
from gpumon.diagnosis.health.thresholds import DEFAULTS, Thresholds

UNKNOWN_SECONDS: Final = 60.0
"""A warning that cannot be looked after, because what it needs is missing, stands so long and no longer."""
LONGEST_GAP_SECONDS: Final = 30.0
"""What was seen before a longer silence does not count as seen without a break."""
_LONGEST_GAP_INTERVALS: Final = 3.0
"""Unless frames are meant to come as seldom."""
_MOST_OVER: Final = 200
_FORGET_SECONDS: Final = 600.0
_MINUTE: Final = 60.0

AlertKey = tuple[str | None, str, str]


class OverAlert(NamedTuple):
    """An alert that does not stand any more.

    Attributes:
        alert: As it was at its end.
        ended_seconds: Unix time of its end.
    """

    alert: Alert
    ended_seconds: float


class Change(NamedTuple):
    """An alert above information has begun, or has ended."""

    alert: Alert
    has_begun: bool


@dataclass(slots=True)
class _Standing:
    """An alert that stands, or that will when it has been seen for long enough.

    Attributes:
        alert: As it was seen last.
        rule: The rule that found it; None for those of the machine.
        begun_seconds: When it was first seen (monotonic seconds).
        seen_seconds: When it was last seen.
        shown: Whether it has stood for long enough.
    """

    alert: Alert
    rule: Rule | None
    begun_seconds: float
    seen_seconds: float
    shown: bool = False

    @property
    def is_loud(self) -> bool:
        """Whether it is shown and more than information."""
        return self.shown and self.alert.severity is not Severity.INFO

    def patience_seconds(self, device: Device | None, frame: Frame, limits: Thresholds) -> float:
        """How long it stays without being found: longer where that says nothing, because what it needs is missing."""
        if self.rule is None:
            return 0.0
        if device is None or not self.rule.can_tell(device, limits, has_readings=frame.is_fresh(device)):
            return UNKNOWN_SECONDS if self.is_loud else CLEAR_SECONDS
        return self.rule.clear_seconds if self.shown else 0.0


class HealthHistory:
    """Remembers since when each alert has stood. A value that comes and goes does not raise it anew, nor soften it.

    Args:
        limits: What the rules compare with.

    Attributes:
        over: Warnings and critical alerts that have ended, oldest first.
        changes: Those that the latest frame has begun or ended.
    """

    def __init__(self, limits: Thresholds = DEFAULTS) -> None:
        self.limits = limits
        self.over: deque[OverAlert] = deque(maxlen=_MOST_OVER)
        self.changes: list[Change] = []
        self._pasts: dict[str, Past] = {}
        self._standing: dict[AlertKey, _Standing] = {}
        self._latest: float | None = None

    def clear(self) -> None:
        """Forgets everything."""
        self.over.clear()
        self.changes = []
        self._pasts.clear()
        self._standing.clear()
        self._latest = None

    def check(self, frame: Frame) -> list[Alert]:
        """Takes a frame in, and returns what stands, worst first. One from an earlier moment begins anew."""
        now = frame.monotonic_seconds
        if self._latest is not None and now < self._latest:
            self.clear()
        longest = max(LONGEST_GAP_SECONDS, _LONGEST_GAP_INTERVALS * frame.interval_seconds)
        has_gap = self._latest is not None and now - self._latest > longest
        self._latest = now
        self.changes = []
        found: set[AlertKey] = set()
        for finding in machine_findings(frame):
            found.add(self._see(finding, None, None, frame, has_gap=has_gap))
        if "driver" not in frame.problems:
            for device, rule, finding in self._findings(frame):
                found.add(self._see(finding, device, rule, frame, has_gap=has_gap))
        if len(found) < len(self._standing):
            self._end_those_gone(found, frame)
        return worst_first([each.alert for each in self._standing.values() if each.shown])

    def _findings(self, frame: Frame) -> Iterator[tuple[Device, Rule, Finding]]:
        """What is found on every device whose readings are of this moment, and on those that do not answer."""
        pasts = remember(self._pasts, frame)
        for device in frame.gpus:
            past = pasts[device.key]
            past.forget_xids(past.now - self.limits.xid_minutes * _MINUTE)
            for rule, finding in device_findings(device, past, self.limits, has_readings=frame.is_fresh(device)):
                yield device, rule, finding
        if len(pasts) > len(frame.devices):
            for key in [key for key, past in pasts.items() if past.now < frame.monotonic_seconds - _FORGET_SECONDS]:
                del pasts[key]

    def _see(
        self, finding: Finding, device: Device | None, rule: Rule | None, frame: Frame, *, has_gap: bool
    ) -> AlertKey:
        """Notes that something was found."""
        now = frame.monotonic_seconds
        key = (None if device is None else device.key, finding.id, finding.subject)
        held = self._standing.get(key)
        if held is None or (has_gap and not held.shown):
            held = self._standing[key] = _Standing(alert_of(finding, device, frame.time_seconds), rule, now, now)
        before, was_loud = held.alert, held.is_loud
        if before.severity.rank < finding.severity.rank:
            finding = finding._replace(severity=before.severity)
        held.alert = alert_of(finding, device, before.since_seconds)
        held.seen_seconds = now
        held.shown = held.shown or now - held.begun_seconds >= finding.after_seconds
        if held.is_loud and not was_loud:
            self.changes.append(Change(held.alert, has_begun=True))
        return key

    def _end_those_gone(self, found: set[AlertKey], frame: Frame) -> None:
        """Ends what has not been found for long enough."""
        now = frame.monotonic_seconds
        devices = {} if "driver" in frame.problems else {device.key: device for device in frame.devices}
        for key, held in [*self._standing.items()]:
            if key in found or now - held.seen_seconds < held.patience_seconds(
                devices.get(key[0] or ""), frame, self.limits
            ):
                continue
            del self._standing[key]
            if held.is_loud:
                self.changes.append(Change(held.alert, has_begun=False))
                self.over.append(OverAlert(held.alert, frame.time_seconds))
