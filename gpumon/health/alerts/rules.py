"""All alert rules, and what they find at one moment."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.core.units import age_text
from gpumon.health.alerts.activity import ACTIVITY_RULES
from gpumon.health.alerts.errors import ERROR_RULES, XID_RULE, xid_plural
from gpumon.health.alerts.jobs import JOB_HANGS, JOB_HANGS_LABEL
from gpumon.health.alerts.links import LINK_RULES
from gpumon.health.alerts.memory import MEMORY_RULES, OUT_OF_MEMORY
from gpumon.health.alerts.model import Alert, AlertFinding, Severity, make_alert, ranges_text
from gpumon.health.alerts.rule import DEFAULT_THRESHOLDS, AlertRule, Thresholds
from gpumon.health.alerts.thermal import THERMAL_RULES
from gpumon.health.alerts.tracking import DeviceTracker

XID_SEARCH: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid)."
_LOST_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid), then reset the GPU or reboot."


def host_findings(frame: Frame) -> Iterator[AlertFinding]:
    """What is wrong with the driver or the collector."""
    for subject, problem in frame.problems.items():
        if not hasattr(frame, subject):  # a problem with the name of a field only says why that field is missing
            yield AlertFinding(subject, Severity.CRITICAL, problem.reason, problem.remedy)


def _not_responding(device: Device, _: DeviceTracker, __: Thresholds) -> Iterator[AlertFinding]:
    """A device that cannot be read."""
    gpu = f"GPU {device.index}"
    problem = device.problems.get("state")
    reason = "The driver gives no reason." if problem is None else problem.reason
    remedy = "" if problem is None else problem.remedy
    age_seconds = device.age_seconds or 0.0
    if device.state is DeviceState.UNRESPONSIVE:
        age = "It has never been read" if device.age_seconds is None else f"Its values are {age_text(age_seconds)} old"
        detail = f"{gpu} does not respond. {age}."
        action = XID_SEARCH if problem is None else remedy
        yield AlertFinding("gpu_unresponsive", Severity.CRITICAL, detail, action, age_seconds=age_seconds)
    elif device.state is DeviceState.EXCLUDED:
        yield AlertFinding("gpu_excluded", Severity.WARNING, f"{gpu} is excluded: {reason}", remedy)
    elif device.state is DeviceState.LOST:
        action = remedy or _LOST_ACTION
        yield AlertFinding("gpu_lost", Severity.CRITICAL, f"{gpu} is lost: {reason}", action, age_seconds=age_seconds)


_STATE_RULE: Final = AlertRule(
    "GPU lost, unresponsive, or excluded",
    _not_responding,
    {"gpu_lost": "are lost", "gpu_unresponsive": "do not respond", "gpu_excluded": "are excluded"},
    hold_seconds=0.0,
    clear_seconds=0.0,
)
_RULES_WITHOUT_READINGS: Final = (_STATE_RULE, XID_RULE)
ALERT_RULES: Final = (
    *_RULES_WITHOUT_READINGS,
    *THERMAL_RULES,
    *MEMORY_RULES,
    *LINK_RULES,
    *ERROR_RULES,
    *ACTIVITY_RULES,
)
_PLURALS: Final = {alert_id: clause for rule in ALERT_RULES for alert_id, clause in rule.plurals.items()} | {
    OUT_OF_MEMORY: "each have a process that ran out of memory"
}
RULE_LABELS: Final = {alert_id: rule.label for rule in ALERT_RULES for alert_id in rule.plurals} | {
    OUT_OF_MEMORY: "Process ran out of memory",
    JOB_HANGS: JOB_HANGS_LABEL,
}
"""The condition of each alert of a GPU in a few words, by the id of the alert; Xids are not listed one by one."""


class SkippedRule(NamedTuple):
    """A rule that cannot be checked on some devices.

    Attributes:
        rule: The rule.
        indices: NVML's indices of the devices.
        reason: Why, for the first of them.
    """

    rule: AlertRule
    indices: tuple[int, ...]
    reason: str


def check(frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> list[Alert]:
    """The alerts of one frame, worst first, without those whose condition must hold for some time."""
    alerts = [make_alert(finding, None, frame.time_seconds) for finding in host_findings(frame)]
    if "driver" not in frame.problems:
        trackers = track({}, frame)
        for device in frame.gpus:
            alerts += [
                make_alert(finding, device, frame.time_seconds - finding.age_seconds)
                for _, finding in device_findings(
                    device, trackers[device.key], thresholds, has_readings=device.state is DeviceState.OK
                )
                if not finding.after_seconds
            ]
    return worst_first(alerts)


def device_findings(
    device: Device,
    tracker: DeviceTracker,
    thresholds: Thresholds,
    *,
    has_readings: bool,
    standing: Container[str] = (),
) -> Iterator[tuple[AlertRule, AlertFinding]]:
    """What the rules find on a device.

    Without readings of this moment, only rules that need none are checked. ``standing`` has the labels of rules whose
    alerts the device has already, for which thresholds have a margin.
    """
    for rule in ALERT_RULES if has_readings else _RULES_WITHOUT_READINGS:
        limits = rule.thresholds_while_standing(thresholds) if rule.label in standing else thresholds
        for finding in rule.check(device, tracker, limits):
            yield rule, finding


def track(trackers: dict[str, DeviceTracker], frame: Frame) -> dict[str, DeviceTracker]:
    """Records a frame in the trackers of its devices, by device key; returns the same dictionary."""
    now = frame.monotonic_seconds
    max_nvlinks: dict[str | None, float] = {}
    for device in frame.devices:
        tracker = trackers.get(device.key)
        if tracker is None:
            tracker = trackers[device.key] = DeviceTracker()
        tracker.now = now
        if frame.events:
            tracker.record_events(event for event in frame.events if event.device_key == device.key)
        if frame.is_fresh(device):
            tracker.record_readings(device, now)
        max_nvlinks[device.name] = max(max_nvlinks.get(device.name, 0.0), tracker.max_nvlinks)
    for device in frame.devices:
        trackers[device.key].max_nvlinks_of_product = max_nvlinks[device.name]
    return trackers


def worst_first(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts sorted by severity; alerts of the same severity keep their order."""
    return sorted(alerts, key=lambda alert: alert.severity.rank)


def merged_alerts(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts with one alert in place of those that several devices have in common."""
    by_id: dict[str, list[Alert]] = {}
    for alert in alerts:
        if alert.device_index is not None and plural_clause(alert.id) is not None:
            by_id.setdefault(alert.id, []).append(alert)
    merged: list[Alert] = []
    for alert in alerts:
        group = by_id.get(alert.id, [])
        if len({member.device_index for member in group}) < 2:
            merged.append(alert)
        elif alert is group[0]:
            merged.append(_merged(group))
    return merged


def _merged(alerts: Sequence[Alert]) -> Alert:
    """One alert, with the worst severity and the earliest beginning."""
    indices = ranges_text([alert.device_index for alert in alerts if alert.device_index is not None])
    return replace(
        alerts[0],
        severity=min((alert.severity for alert in alerts), key=lambda severity: severity.rank),
        detail=f"GPUs {indices} {plural_clause(alerts[0].id)}.",
        since_seconds=min(alert.since_seconds for alert in alerts),
    )


def plural_clause(alert_id: str) -> str | None:
    """The clause that follows "GPUs 0-3" when several devices have an alert; None for an alert of the host."""
    return _PLURALS.get(alert_id) or xid_plural(alert_id)


def rule_label(alert_id: str) -> str | None:
    """The condition of an alert in a few words; None for an alert of the host."""
    return XID_RULE.label if xid_plural(alert_id) else RULE_LABELS.get(alert_id)


def skipped_rules(frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Iterator[SkippedRule]:
    """The rules that cannot be checked on devices that respond, because something that they need is missing."""
    responding = [device for device in frame.gpus if device.state is DeviceState.OK]
    for rule in ALERT_RULES:
        lacking = [
            (device, name) for device in responding if (name := rule.missing_need(device, thresholds)) is not None
        ]
        if lacking:
            device, name = lacking[0]
            reason = _missing_reason(device.problems.get(name), name)
            yield SkippedRule(rule, tuple(device.index for device, _ in lacking), reason)


def _missing_reason(problem: Problem | None, name: str) -> str:
    return f"{name} is not read." if problem is None else problem.reason
