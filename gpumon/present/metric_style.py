"""How values of metrics look: the text in place of a missing value, and the role of a value by its limits."""

from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device
from gpumon.core.problems import ProblemCode
from gpumon.core.text_table import table
from gpumon.core.units import INVALID, MISSING
from gpumon.health.alerts import Severity, Thresholds, is_link_degraded, is_near_slowdown
from gpumon.present.paint.line import Role

SEVERITY_ROLES: Final = {Severity.CRITICAL: Role.ERROR, Severity.WARNING: Role.WARNING, Severity.INFO: Role.ACCENT}
_ROLES_BY_PREFIX: Final = [row.split() for row in table("gpumon.present", "metric_roles")]
METRIC_ROLES: Final = {
    metric: Role[next((role for prefix, role in _ROLES_BY_PREFIX if metric.startswith(prefix)), "PLAIN")]
    for metric in METRICS
}
"""The color of each metric, the same in every chart."""
NEARLY_FULL_PERCENT: Final = 95.0
_MEDIUM_LOAD_PERCENT: Final = 30.0
_HIGH_LOAD_PERCENT: Final = 80.0


def load_role(percent: float | None) -> Role:
    """The role of a bar by its load: low below 30 %, high from 80 % on; its length and a number say the same."""
    if percent is None or percent < _MEDIUM_LOAD_PERCENT:
        return Role.LOAD_LOW
    return Role.LOAD_MEDIUM if percent < _HIGH_LOAD_PERCENT else Role.LOAD_HIGH


def missing_text(device: Device, name: str) -> str:
    """A dash for a missing value, or a question mark for a value of the driver that is outside its bounds.

    Args:
        device: The device without the value.
        name: A metric or a field.
    """
    problem = device.problems.get(name)
    return INVALID if problem is not None and problem.code is ProblemCode.INVALID_VALUE else MISSING


def temperature_role(device: Device, thresholds: Thresholds) -> Role:
    """Warning where the alert begins, which is a margin below the slowdown temperature, and error from there on."""
    value, slowdown = device.get("temperature_celsius"), device.get("temperature_slowdown_celsius")
    if value is not None and slowdown is not None and value >= slowdown:
        return Role.ERROR
    return Role.WARNING if is_near_slowdown(device, thresholds) else Role.PLAIN


def memory_role(device: Device) -> Role:
    """Warning for memory that is nearly full."""
    used, total = device.get("memory_used_bytes"), device.get("memory_total_bytes")
    is_full = used is not None and total is not None and 100 * used > NEARLY_FULL_PERCENT * total
    return Role.WARNING if is_full else Role.PLAIN


def link_role(device: Device, thresholds: Thresholds) -> Role:
    """Warning for a busy GPU on a slower or narrower PCIe link than it supports, as in the alerts."""
    return Role.WARNING if is_link_degraded(device, thresholds) else Role.PLAIN
