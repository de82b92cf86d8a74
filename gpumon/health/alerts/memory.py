"""Rules for device memory: which process holds it, and which process uses more and more of it."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_much_unattributed
from gpumon.core.metrics import Unit
from gpumon.core.model import Device, Process
from gpumon.core.text import safe_text
from gpumon.core.units import age_text, bytes_text, duration_text
from gpumon.health.alerts.model import AlertFinding, EvidenceItem, Severity, evidence_of
from gpumon.health.alerts.rule import AlertRule, Thresholds
from gpumon.health.alerts.tracking import TREND_SECONDS, DeviceTracker, Growth

OUT_OF_MEMORY: Final = "out_of_memory"
"""Id of the alert about a process with a probe that ran out of memory."""
UNATTRIBUTED_FIX: Final = (
    "Find the process that holds it: sudo fuser -v /dev/nvidia*. The process may run in a container or may be exiting."
)

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_MAX_COMMAND: Final = 40
_EVIDENCE: Final = ("memory_used_bytes", "memory_total_bytes", "memory_free_bytes", "utilization_gpu_percent")


def _unattributed(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Memory in use that no visible process owns."""
    if is_much_unattributed(device, thresholds.memory_unattributed_percent):
        held = bytes_text(device.get("memory_unattributed_bytes"))
        yield AlertFinding(
            "memory_unattributed",
            Severity.WARNING,
            f"GPU {device.index} has {held} of unattributed memory: no visible process owns it.",
            UNATTRIBUTED_FIX,
            evidence_of(device, "memory_unattributed_bytes", *_EVIDENCE),
        )


def _idle_memory(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """An idle GPU with memory in use."""
    utilization, used = device.get("utilization_gpu_percent"), device.get("memory_used_bytes")
    if utilization is None or used is None:
        return
    if utilization > thresholds.idle_percent or used < thresholds.idle_memory_gib * _GIB:
        return
    largest = max(device.processes or (), key=lambda process: process.memory_bytes or 0, default=None)
    holder = "" if largest is None else f", most of it by {_process_text(largest)}"
    detail = f"GPU {device.index} is idle, but {bytes_text(used)} of its memory is in use{holder}."
    action = "If no job should run on this GPU, end the process or let it free its memory."
    evidence = evidence_of(device, *_EVIDENCE)
    yield AlertFinding("idle_memory", Severity.INFO, detail, action, evidence, "", thresholds.idle_seconds)


def _leaks(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Processes whose memory only grows, with the time until the GPU is full."""
    free = device.get("memory_free_bytes")
    if free is None:
        return
    for process in device.processes or ():
        trend = tracker.trends.get(process.pid)
        if trend is None:
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
    severity = Severity.WARNING if left_seconds <= thresholds.leak_warning_hours * _HOUR else Severity.INFO
    detail = (
        f"GPU {device.index}: the memory of {_process_text(process)} has grown by {bytes_text(growth.bytes)} in "
        f"{age_text(growth.seconds)}. At this rate, the GPU is out of memory in about {duration_text(left_seconds)}."
    )
    action = (
        "Look for tensors that the program keeps from step to step, such as losses summed without .item() or "
        ".detach(). torch.cuda.memory._record_memory_history() records which line allocates."
    )
    evidence = (
        EvidenceItem("Memory of the process", process.memory_bytes or 0, Unit.BYTES),
        EvidenceItem("Growth", growth.bytes_per_second, Unit.BYTES_PER_SECOND),
        *evidence_of(device, "memory_free_bytes"),
    )
    return AlertFinding("memory_leak", severity, detail, action, evidence, f"PID {process.pid}")


def oom_subject(pid: int, number: int) -> str:
    """The subject of the alert about a process that ran out of memory, which distinguishes it from earlier ones."""
    return f"PID {pid}" if number == 1 else f"PID {pid} #{number}"


def oom_finding(device: Device | None, pid: int, number: int, path: str, age_seconds: float) -> AlertFinding:
    """A process with a probe ran out of memory."""
    where = "" if device is None else f" on GPU {device.label}"
    again = "" if number == 1 else " again"
    detail = f"PID {pid} ran out of memory{again}{where}."
    action = (
        "To see what filled the memory: gpumon explain --oom, or e on the screens Alerts and Memory. "
        f"File: {safe_text(path)}"
    )
    evidence = () if device is None else evidence_of(device, *_EVIDENCE)
    subject = oom_subject(pid, number)
    return AlertFinding(OUT_OF_MEMORY, Severity.WARNING, detail, action, evidence, subject, age_seconds=age_seconds)


def _process_text(process: Process) -> str:
    """A process by its PID and the name of its program."""
    if process.command is None:
        return f"PID {process.pid}"
    program, _, arguments = process.command.partition(" ")
    text = f"{program.rpartition('/')[2]} {arguments}".rstrip()
    return f"PID {process.pid} ({text if len(text) <= _MAX_COMMAND else f'{text[: _MAX_COMMAND - 1]}…'})"


MEMORY_RULES: Final = (
    AlertRule(
        "Unattributed memory",
        _unattributed,
        {"memory_unattributed": "have unattributed memory: no visible process owns it"},
        ("memory_unattributed_bytes",),
        clear_seconds=5.0,
        margins={"memory_unattributed_percent": -0.2},
    ),
    AlertRule(
        "Memory in use on an idle GPU",
        _idle_memory,
        {"idle_memory": "are idle, but their memory is in use"},
        ("utilization_gpu_percent", "memory_used_bytes"),
        clear_seconds=3.0,
        margins={"idle_percent": 3.0, "idle_memory_gib": -0.1},
    ),
    AlertRule(
        "Process whose memory only grows",
        _leaks,
        {"memory_leak": "each have a process whose memory only grows"},
        ("processes", "memory_free_bytes"),
        hold_seconds=0.0,
    ),
)
