"""All alert rules, and what they find at one moment."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.groups import grouped
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.core.throttle_reasons import THROTTLE_REASONS
from gpumon.core.units import age_text
from gpumon.health.alerts.errors import corrected_rising, row_remapping, uncorrected, xid_plural, xids
from gpumon.health.alerts.links import degraded_link, nvlink_down, replays
from gpumon.health.alerts.memory import idle_memory, leaks, unattributed
from gpumon.health.alerts.model import Alert, AlertFinding, Severity, make_alert, ranges_text
from gpumon.health.alerts.rule import (
    ALERT_TEXTS,
    DEFAULT_THRESHOLDS,
    RULE_ROWS,
    AlertRule,
    RuleCheck,
    RuleRow,
    Thresholds,
    finding_of,
)
from gpumon.health.alerts.thermal import (
    busy_without_sm,
    clocks_set,
    fault_throttling,
    hot_memory,
    low_clock,
    near_slowdown,
    power_cap,
)
from gpumon.health.alerts.tracking import DeviceTracker

if TYPE_CHECKING:
    from gpumon.core.ranks import HangVerdict

XID_SEARCH: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid)."
_LOST_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid), then reset the GPU or reboot."
OUT_OF_MEMORY: Final = "out_of_memory"
"""Id of the alert about a process with a probe that ran out of memory."""
JOB_HANGS: Final = "job_hangs"
"""Id of the alert about a training job that hangs."""


def host_findings(frame: Frame) -> Iterator[AlertFinding]:
    """What is wrong with the driver or the collector."""
    for subject, problem in frame.problems.items():
        if not hasattr(frame, subject):  # a problem with the name of a field only says why that field is missing
            yield AlertFinding(subject, Severity.CRITICAL, problem.reason, problem.remedy)


def not_responding(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A device that cannot be read."""
    problem = device.problems.get("state")
    reason = "The driver gives no reason." if problem is None else problem.reason
    remedy = "" if problem is None else problem.remedy
    if device.state is DeviceState.EXCLUDED:
        yield finding_of("gpu_excluded", device, thresholds, reason=reason, remedy=remedy)
    elif device.state is DeviceState.UNRESPONSIVE:
        age = "It has never been read"
        if device.age_seconds is not None:
            age = f"Its values are {age_text(device.age_seconds)} old"
        finding = finding_of(
            "gpu_unresponsive", device, thresholds, age=age, remedy=XID_SEARCH if problem is None else remedy
        )
        yield finding._replace(age_seconds=device.age_seconds or 0.0)
    elif device.state is DeviceState.LOST:
        finding = finding_of("gpu_lost", device, thresholds, reason=reason, remedy=remedy or _LOST_ACTION)
        yield finding._replace(age_seconds=device.age_seconds or 0.0)


def oom_subject(pid: int, number: int) -> str:
    """The subject of the alert about a process that ran out of memory, which distinguishes it from earlier ones."""
    return f"PID {pid}" if number == 1 else f"PID {pid} #{number}"


def oom_finding(device: Device | None, pid: int, number: int, path: str, age_seconds: float) -> AlertFinding:
    """A process with a probe ran out of memory; ``number`` is that of the file, counted by the process."""
    where = "" if device is None else f" on GPU {device.label}"
    again = "" if number == 1 else " again"
    texts = {"pid": pid, "where": where, "again": again, "file": safe_text(path)}
    finding = finding_of(OUT_OF_MEMORY, device, DEFAULT_THRESHOLDS, **texts)
    return finding._replace(subject=oom_subject(pid, number), age_seconds=age_seconds)


def hang_finding(job: str, verdict: "HangVerdict") -> AlertFinding:
    """What is reported of a job that hangs."""
    finding = finding_of(JOB_HANGS, None, DEFAULT_THRESHOLDS, job=job, summary=verdict.summary)
    return finding._replace(detail=safe_text(finding.detail), subject=job, age_seconds=verdict.since_seconds or 0.0)


_CONDITIONS: Final[dict[str, RuleCheck]] = {
    condition.__name__: condition
    for condition in (
        *(not_responding, xids, fault_throttling, power_cap, clocks_set, low_clock, near_slowdown, hot_memory),
        *(unattributed, idle_memory, leaks, degraded_link, replays, nvlink_down),
        *(uncorrected, corrected_rising, row_remapping, busy_without_sm),
    )
}


def _rule(row: RuleRow) -> AlertRule:
    plurals = {alert_id: text.clause for alert_id, text in row.texts.items() if "{" not in text.clause}
    if "throttled" in row.texts:
        clause = row.texts["throttled"].clause
        plurals |= {
            reason.id: clause.format(fault=reason.fault) for reason in THROTTLE_REASONS.values() if reason.fault
        }
    own = {name: row.options[name] for name in ("hold_seconds", "clear_seconds", "busy_only") if name in row.options}
    margins = {name: change for name, change in row.options.items() if name not in own}
    return AlertRule(row.label, _CONDITIONS[row.condition], plurals, row.needs, margins=margins, **own)


ALERT_RULES: Final = tuple(_rule(row) for row in RULE_ROWS if row.condition)
_RULES_WITHOUT_READINGS: Final = tuple(rule for rule in ALERT_RULES if not rule.needs)
_XID_LABEL: Final = next(row.label for row in RULE_ROWS if "xid" in row.texts)
_PLURALS: Final = {alert_id: clause for rule in ALERT_RULES for alert_id, clause in rule.plurals.items()} | {
    OUT_OF_MEMORY: ALERT_TEXTS[OUT_OF_MEMORY].clause
}
RULE_LABELS: Final = {alert_id: rule.label for rule in ALERT_RULES for alert_id in rule.plurals} | {
    alert_id: row.label for row in RULE_ROWS if not row.condition for alert_id in row.texts
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
    device: Device, tracker: DeviceTracker, thresholds: Thresholds, *, has_readings: bool, standing: Container[str] = ()
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
    of_devices = (alert for alert in alerts if alert.device_index is not None and plural_clause(alert.id) is not None)
    by_id = grouped((alert.id, alert) for alert in of_devices)
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
    return _XID_LABEL if xid_plural(alert_id) else RULE_LABELS.get(alert_id)


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
