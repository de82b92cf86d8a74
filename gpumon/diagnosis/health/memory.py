"""Rules over device memory: who holds it, and who takes ever more of it."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.metrics import Unit
from gpumon.core.model import Device, Process
from gpumon.core.units import MISSING, age_text, bytes_text, duration_text
from gpumon.diagnosis.health.alert import Figure, Finding, Severity, figures
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule
from gpumon.diagnosis.health.thresholds import DEFAULTS, Thresholds
from gpumon.diagnosis.health.trend import WINDOW_SECONDS, Growth

UNATTRIBUTED_FLOOR_BYTES: Final = 64 << 20
"""Unowned memory below this is the driver's bookkeeping beside every process."""

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_MOST_COMMAND: Final = 40
_EVIDENCE: Final = ("memory_used_bytes", "memory_total_bytes", "memory_free_bytes", "utilization_gpu_percent")


def is_unattributed(device: Device) -> bool:
    """Whether a device has memory in use that no visible process owns, beyond bookkeeping."""
    held = device.get("memory_unattributed_bytes")
    return held is not None and held >= UNATTRIBUTED_FLOOR_BYTES


def is_much_unattributed(device: Device, limits: Thresholds = DEFAULTS) -> bool:
    """Whether it is more than a share that a process about to end leaves for a moment."""
    held = device.get("memory_unattributed_bytes") or 0
    total = device.get("memory_total_bytes") or 0
    return is_unattributed(device) and held >= limits.memory_unattributed_percent / 100 * total


def unattributed(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """Memory that no visible process owns."""
    if is_much_unattributed(device, limits):
        held = bytes_text(device.get("memory_unattributed_bytes"))
        yield Finding(
            "memory_unattributed",
            Severity.WARNING,
            f"GPU {device.index}: {held} of memory belong to no visible process.",
            "Look for its holder: sudo fuser -v /dev/nvidia*; it may run in a container or be about to end.",
            figures(device, "memory_unattributed_bytes", *_EVIDENCE),
        )


def idle_holder(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """An idle GPU whose memory is taken."""
    utilization, used = device.get("utilization_gpu_percent"), device.get("memory_used_bytes")
    if utilization is None or used is None or utilization > limits.idle_percent or used < limits.idle_memory_gib * _GIB:
        return
    held = ((process.memory_bytes or 0, process) for process in device.processes or ())
    largest = max(held, key=lambda pair: pair[0], default=None)
    holder = "" if largest is None else f", most of it {_named(largest[1])}"
    detail = f"GPU {device.index} is idle and holds {bytes_text(used)} of memory{holder}."
    action = "If nothing is meant to run there, end the process, or let it give the memory back."
    yield Finding("idle_memory", Severity.INFO, detail, action, figures(device, *_EVIDENCE), "", limits.idle_seconds)


def leaking(device: Device, past: Past, limits: Thresholds) -> Iterator[Finding]:
    """Processes whose memory only ever grows, with the time until none is left."""
    free = device.get("memory_free_bytes")
    if free is None:
        return
    for process in device.processes or ():
        trend = past.trends.get(process.pid)
        if trend is None:
            continue
        least_seconds = min(limits.leak_minutes * _MINUTE, WINDOW_SECONDS)
        growth = trend.growth(least_seconds, limits.leak_growth_mib * _MIB)
        if growth is not None and growth.bytes_per_second > 0:
            left = free / growth.bytes_per_second
            if left <= limits.leak_horizon_hours * _HOUR:
                yield _leak(device, process, growth, left, limits)


def _leak(device: Device, process: Process, growth: Growth, left_seconds: float, limits: Thresholds) -> Finding:
    severity = Severity.WARNING if left_seconds <= limits.leak_warning_hours * _HOUR else Severity.INFO
    detail = (
        f"GPU {device.index}: the memory of {_named(process)} has grown by {bytes_text(growth.bytes)} "
        f"in {age_text(growth.seconds)} and goes on; at that rate none is left in about {duration_text(left_seconds)}."
    )
    action = (
        "Look for tensors that are kept from step to step, such as losses summed up without .item() or .detach(); "
        "torch.cuda.memory._record_memory_history() tells which line allocates."
    )
    found = (
        Figure("Memory of the process", process.memory_bytes or 0, Unit.BYTES),
        Figure("Grows by", growth.bytes_per_second, Unit.BYTES_PER_SECOND),
        *figures(device, "memory_free_bytes"),
    )
    return Finding("memory_leak", severity, detail, action, found, f"PID {process.pid}")


def _named(process: Process) -> str:
    """A process by its PID and the name of its program."""
    program, _, rest = (process.command or MISSING).partition(" ")
    text = f"{program.rpartition('/')[2]} {rest}".rstrip()
    shown = text if len(text) <= _MOST_COMMAND else f"{text[: _MOST_COMMAND - 1]}…"
    return f"PID {process.pid}" if process.command is None else f"PID {process.pid} ({shown})"


MEMORY_RULES: Final = (
    Rule("Memory that nobody owns", unattributed, ("memory_unattributed_bytes",), clear_seconds=5.0),
    Rule(
        "Idle GPU that holds memory", idle_holder, ("utilization_gpu_percent", "memory_used_bytes"), clear_seconds=3.0
    ),
    Rule("Memory of a process that only grows", leaking, ("processes", "memory_free_bytes")),
)
