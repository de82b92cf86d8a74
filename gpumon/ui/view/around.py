"""The lines around the tables: the machine, versions, sums, and what is wrong."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.model import Device, Frame
from gpumon.core.units import MISSING, bytes_text, duration_text, number_text
from gpumon.diagnosis.health import Alert, Severity, merged_alerts
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.ui.scene import Scene

_ALERT_ROLES: Final = {Severity.CRITICAL: Role.ERROR, Severity.WARNING: Role.WARNING, Severity.INFO: Role.ACCENT}

_LEAST_TITLE: Final = 8
"""Cells that alerts leave to what is shown."""


def title_line(what: str, more: str, scene: Scene, width: int, *, key: bool = True) -> Line:
    """What is shown at the left, and alerts, the source and how it stands at the right.

    ``more`` stands between them where it fits. Notes give way to what is shown, warnings do not.
    """
    right = f"{scene.source} "
    counted = alerts_text(scene.alerts, key=key)
    least = _LEAST_TITLE if counted.startswith("!") else width_of(what)
    if counted and least + 2 + width_of(f"{counted}  {right}") <= width:
        right = f"{counted}  {right}"
    left = clipped(f" {what}", width - width_of(right) - 1)
    middle = f"  {more}" if more and width_of(left + more + right) + 4 <= width else ""
    gap = max(1, width - width_of(left + middle + right))
    return (Span(f"{left}{middle}{' ' * gap}{right}", Role.HEADING),)


def alerts_text(alerts: Sequence[Alert], *, key: bool = True) -> str:
    """How many alerts there are, or how many notes where there is nothing worse, and the key that leads to them."""
    leads = " (a)" if key else ""
    above = sum(alert.severity is not Severity.INFO for alert in alerts)
    if above:
        return f"! {above} alert{'s' if above > 1 else ''}{leads}"
    notes = sum(is_note(alert) for alert in alerts)
    return f"{notes} note{'s' if notes > 1 else ''}{leads}" if notes else ""


def is_note(alert: Alert) -> bool:
    """Whether it is mere information about a GPU, which is told where somebody looks for it."""
    return alert.severity is Severity.INFO and alert.device_key is not None


def host_line(frame: Frame) -> Line:
    """The machine in one line."""
    host = frame.host
    used = None
    if host.memory_total_bytes is not None and host.memory_available_bytes is not None:
        used = host.memory_total_bytes - host.memory_available_bytes
    load = MISSING if host.load is None else " ".join(f"{each:.1f}" for each in host.load)
    return line(
        Span(f" {host.name or 'host'}", Role.ACCENT),
        f"  CPU {number_text(host.cpu_percent):>3}% of {host.cpu_count or MISSING}  load {load}"
        f"  memory {bytes_text(used)} of {bytes_text(host.memory_total_bytes)}"
        f"  up {duration_text(host.uptime_seconds)}",
    )


def running_text(count: int) -> str:
    """That workloads run, and the key that leads to them; nothing while none does."""
    return "" if not count else f"{count} workload{'s run' if count > 1 else ' runs'} (w)  "


def versions(frame: Frame) -> str:
    """Driver, CUDA and the number of GPUs."""
    parts = []
    if frame.driver_version:
        parts.append(f"driver {frame.driver_version}")
    if frame.cuda_driver_version:
        parts.append(f"CUDA {frame.cuda_driver_version}")
    if frame.devices or frame.driver_version:
        parts.append(_devices_text(frame.gpus))
    return " · ".join(parts)


def _devices_text(devices: Sequence[Device]) -> str:
    """How many GPUs there are, and of which kind if they are of one."""
    names = {device.name for device in devices if device.name is not None}
    count = len(devices)
    if len(names) == 1:
        return f"{count} x {names.pop().removeprefix('NVIDIA ')}"
    return f"{count} GPU{'' if count == 1 else 's'}"


def totals_text(frame: Frame) -> str:
    """Utilisation, memory and power of all GPUs that answer; those that do not are left out and counted."""
    gpus = frame.gpus
    answering = [device for device in gpus if frame.is_fresh(device)]
    utilization = list(_readings(answering, "utilization_gpu_percent"))
    power = list(_readings(answering, "power_watts"))
    used = list(_readings(answering, "memory_used_bytes"))
    parts = []
    if len(answering) < len(gpus):
        parts.append(f"{len(answering)} of {len(gpus)} answer")
    if utilization:
        parts.append(f"util {sum(utilization) / len(utilization):.0f}%")
    if used:
        parts.append(f"memory {bytes_text(sum(used))}")
    if power:
        parts.append(f"{sum(power):.0f} W")
    return " · ".join(parts)


def _readings(devices: Sequence[Device], metric: str) -> Iterator[float]:
    for device in devices:
        value = device.get(metric)
        if value is not None:
            yield value


def banner(alerts: Sequence[Alert], width: int, most: int, now: float) -> list[Line]:
    """The worst alerts, a line each, with what to do where that fits; the last line counts those left out.

    Args:
        alerts: Worst first; alike ones of several devices become one, and notes are left out.
        width: Cells of a line.
        most: Lines at most.
        now: Unix time of the moment that is shown, for how long an alert has stood.
    """
    lines: list[Line] = []
    if width < 1:
        return lines
    shown = merged_alerts([alert for alert in alerts if not is_note(alert)])
    for alert in shown[:most]:
        role = _ALERT_ROLES[alert.severity]
        stood = now - alert.since_seconds if alert.since_seconds else 0.0
        since = f" ({duration_text(stood)})" if stood >= 60 else ""
        text = f" ! {alert.detail}{since}"
        if width_of(text) + 1 + width_of(alert.action) <= width:
            text = f"{text} {alert.action}"
        lines.append(line(Span(clipped(text, width), role)))
        if len(shown) == 1 and most > 1 and alert.action and alert.action not in text:
            lines.append(line(Span(clipped(f"   {alert.action}", width), role)))
    left_out = len(shown) - most
    if left_out > 0:
        rest = f" (+{left_out} more)"
        text, role = lines[-1][0]
        lines[-1] = line(Span(clipped(clipped(text, width - len(rest)) + rest, width), role))
    return lines
