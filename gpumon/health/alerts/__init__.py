"""Alerts: which live values need attention, since when, and what to do about them.

To add an alert, write its condition in the module of its topic, `thermal`, `memory`, `links` or `errors`, and its
texts in `alerts.txt`.
"""

from gpumon.health.alerts.history import AlertChange, AlertHistory, DeviceFinding, EndedAlert
from gpumon.health.alerts.links import is_link_degraded
from gpumon.health.alerts.model import Alert, AlertFinding, AlertKey, Evidence, EvidenceItem, Severity, ranges_text
from gpumon.health.alerts.rule import DEFAULT_THRESHOLDS, AlertRule, Thresholds
from gpumon.health.alerts.rules import (
    ALERT_RULES,
    JOB_HANGS,
    OUT_OF_MEMORY,
    RULE_LABELS,
    SkippedRule,
    check,
    hang_finding,
    merged_alerts,
    oom_finding,
    oom_subject,
    rule_label,
    skipped_rules,
)
from gpumon.health.alerts.thermal import has_no_sm_work, is_near_slowdown

__all__ = [
    "ALERT_RULES", "DEFAULT_THRESHOLDS", "JOB_HANGS", "OUT_OF_MEMORY", "RULE_LABELS", "Alert", "AlertChange",
    "AlertFinding", "AlertHistory", "AlertKey", "AlertRule", "DeviceFinding", "EndedAlert", "Evidence", "EvidenceItem",
    "Severity", "SkippedRule", "Thresholds", "check", "hang_finding", "has_no_sm_work", "is_link_degraded",
    "is_near_slowdown", "merged_alerts", "oom_finding", "oom_subject", "ranges_text", "rule_label", "skipped_rules",
]  # fmt: skip
