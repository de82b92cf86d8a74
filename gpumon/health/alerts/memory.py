"""Conditions of device memory: which process holds it, and which process uses more and more of it."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_much_unattributed
from gpumon.core.metrics import Unit
from gpumon.core.model import Device, Process
from gpumon.core.units import age_text, bytes_text, duration_text
from gpumon.health.alerts.model import AlertFinding, EvidenceItem, Severity
from gpumon.health.alerts.rule import Thresholds, finding_of
from gpumon.health.alerts.tracking import TREND_SECONDS, DeviceTracker, Growth

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_MAX_COMMAND: Final = 40


def unattributed(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Memory in use that no visible process owns."""
    if is_much_unattributed(device, thresholds.memory_unattributed_percent):
        held = bytes_text(device.get("memory_unattributed_bytes"))
        yield finding_of("memory_unattributed", device, thresholds, held=held)


def idle_memory(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """An idle GPU with memory in use."""
    utilization, used = device.get("utilization_gpu_percent"), device.get("memory_used_bytes")
    if utilization is None or used is None:
        return
    if utilization <= thresholds.idle_percent and used >= thresholds.idle_memory_gib * _GIB:
        largest = max(device.processes or (), key=lambda process: process.memory_bytes or 0, default=None)
        holder = "" if largest is None else f", most of it by {_process_text(largest)}"
        yield finding_of("idle_memory", device, thresholds, used=bytes_text(used), holder=holder)


def leaks(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Processes whose memory only grows, with the time until the GPU is full."""
    free = device.get("memory_free_bytes")
    for process in device.processes or ():
        trend = tracker.trends.get(process.pid)
        if trend is None or free is None:
            continue
        min_seconds = min(thresholds.leak_minutes * _MINUTE, TREND_SECONDS)
        growth = trend.growth(min_seconds, thresholds.leak_growth_mib * _MIB)
        if growth is not None and growth.bytes_per_second > 0:
            left_seconds = free / growth.bytes_per_second
            if left_seconds <= thresholds.leak_horizon_hours * _HOUR:
                yield _leak(device, process, growth, left_seconds, thresholds)


def _leak(
    device: Device, process: Process, growth: Growth, left_seconds: float, thresholds: Thresholds
) -> AlertFinding:
    finding = finding_of(
        "memory_leak",
        device,
        thresholds,
        process=_process_text(process),
        grown=bytes_text(growth.bytes),
        time=age_text(growth.seconds),
        left=duration_text(left_seconds),
    )
    is_near = left_seconds <= thresholds.leak_warning_hours * _HOUR
    own = (
        EvidenceItem("Memory of the process", process.memory_bytes or 0, Unit.BYTES),
        EvidenceItem("Growth", growth.bytes_per_second, Unit.BYTES_PER_SECOND),
    )
    return finding._replace(
        severity=Severity.WARNING if is_near else finding.severity,
        subject=f"PID {process.pid}",
        evidence=(*own, *finding.evidence),
    )


def _process_text(process: Process) -> str:
    """A process by its PID and the name of its program."""
    if process.command is None:
        return f"PID {process.pid}"
    program, _, arguments = process.command.partition(" ")
    text = f"{program.rpartition('/')[2]} {arguments}".rstrip()
    return f"PID {process.pid} ({text if len(text) <= _MAX_COMMAND else f'{text[: _MAX_COMMAND - 1]}…'})"
