"""The lines around the tables: alert banner, host and versions."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.model import Device, Frame, short_product_name
from gpumon.core.units import MISSING, bytes_text, counted, duration_text, number_text, of_text
from gpumon.health.alerts import Alert, Severity, merged_alerts
from gpumon.present.metric_style import SEVERITY_ROLES
from gpumon.present.paint.line import Line, Role, Span, clipped, line, width_of

_MIN_ALERT_AGE_SECONDS: Final = 60
"""The banner shows the age of an alert from here on."""


def is_device_info(alert: Alert) -> bool:
    """Whether an alert is only information about a GPU, which the alerts screen shows and the banner does not."""
    return alert.severity is Severity.INFO and alert.device_key is not None


def host_line(frame: Frame) -> Line:
    """The host in one line."""
    host = frame.host
    used = None
    if host.memory_total_bytes is not None and host.memory_available_bytes is not None:
        used = host.memory_total_bytes - host.memory_available_bytes
    load = MISSING if host.load is None else " ".join(f"{average:.1f}" for average in host.load)
    return line(
        Span(f" {host.name or 'host'}", Role.ACCENT),
        f"  CPU {number_text(host.cpu_percent):>3}% of {host.cpu_count or MISSING}  load {load}"
        f"  memory {of_text(bytes_text(used), bytes_text(host.memory_total_bytes))}"
        f"  up {duration_text(host.uptime_seconds)}",
    )


def versions_text(frame: Frame) -> str:
    """Driver version, CUDA version and the number of GPUs."""
    parts = []
    if frame.driver_version:
        parts.append(f"driver {frame.driver_version}")
    if frame.cuda_driver_version:
        parts.append(f"CUDA {frame.cuda_driver_version}")
    if frame.devices or frame.driver_version:
        parts.append(_gpus_text(frame.gpus or frame.devices))
    return " · ".join(parts)


def _gpus_text(gpus: Sequence[Device]) -> str:
    """The number of GPUs, or of instances without a GPU, with the product name if it is the same for all of them."""
    names = {device.name for device in gpus if device.name is not None}
    if len(names) == 1:
        return f"{len(gpus)} x {short_product_name(names.pop())}"
    return counted(len(gpus), "MIG instance" if gpus and gpus[0].instance is not None else "GPU")


def banner(alerts: Sequence[Alert], width: int, max_lines: int, now: float) -> list[Line]:
    """The worst alerts, one line each, with the action where it fits. The last line counts those left out.

    Args:
        alerts: Worst first. The same alert on several devices becomes one; info alerts of devices, and those that are
            acknowledged, are left out.
        width: Cells of a line.
        max_lines: Maximum number of lines.
        now: Unix time of the moment that is shown, for the age of an alert.
    """
    lines: list[Line] = []
    if width < 1 or max_lines < 1:
        return lines
    shown = merged_alerts([alert for alert in alerts if not (alert.is_acknowledged or is_device_info(alert))])
    for alert in shown[:max_lines]:
        role = SEVERITY_ROLES[alert.severity]
        age = now - alert.since_seconds if alert.since_seconds else 0.0
        since = f" ({duration_text(age)})" if age >= _MIN_ALERT_AGE_SECONDS else ""
        text = f" ! {alert.detail}{since}"
        if width_of(text) + 1 + width_of(alert.action) <= width:
            text = f"{text} {alert.action}".rstrip()
        lines.append(line(Span(clipped(text, width), role)))
        if len(shown) == 1 and max_lines > 1 and alert.action and alert.action not in text:
            lines.append(line(Span(clipped(f"   {alert.action}", width), role)))
    left_out = len(shown) - max_lines
    if left_out > 0:
        ending = f" (+{left_out} more)"
        text, role = lines[-1][0]
        lines[-1] = line(Span(clipped(clipped(text, width - len(ending)) + ending, width), role))
    return lines
