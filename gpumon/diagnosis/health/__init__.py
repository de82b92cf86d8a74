"""Health rules: what in the live figures deserves a person's attention, since when, and what to do about it.

A GPU at its power limit is information: that is how a healthy one behaves under full load.
"""

from gpumon.diagnosis.health.alert import Alert, Evidence, Figure, Finding, Severity, merged_alerts, ranges_text
from gpumon.diagnosis.health.history import Change, HealthHistory, OverAlert
from gpumon.diagnosis.health.memory import UNATTRIBUTED_FLOOR_BYTES, is_much_unattributed, is_unattributed
from gpumon.diagnosis.health.rules import RULES, Unchecked, check, unchecked
from gpumon.diagnosis.health.thresholds import DEFAULTS, Thresholds

__all__ = [
    "DEFAULTS",
    "RULES",
    "UNATTRIBUTED_FLOOR_BYTES",
    "Alert",
    "Change",
    "Evidence",
    "Figure",
    "Finding",
    "HealthHistory",
    "OverAlert",
    "Severity",
    "Thresholds",
    "Unchecked",
    "check",
    "is_much_unattributed",
    "is_unattributed",
    "merged_alerts",
    "ranges_text",
    "unchecked",
]
