"""Every value of a device or a process as an entry: a label, the value, and its meaning or why it is missing."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from textwrap import wrap
from typing import Final

from gpumon.core.metrics import METRICS, Metric, Unit
from gpumon.core.model import DEVICE_ATTRIBUTES, Device, Process
from gpumon.core.problems import Problem
from gpumon.core.units import (
    MISSING,
    age_text,
    bytes_text,
    counted,
    kilowatt_hours_text,
    number_text,
    spaced_percent_text,
)
from gpumon.present.limits import limited_text
from gpumon.present.paint.line import Line, Role, Span, clipped, line

LABEL_WIDTH: Final = 29
VALUE_WIDTH: Final = 41
_MIN_NOTE_WIDTH: Final = 20
_MAX_PROCESSES: Final = 16
_MAX_CACHED_LINES: Final = 256
"""Cached lines: most entries of a table do not change from one frame to the next."""
_MEANINGS: Final = {metric.id: f"{metric.help} ({metric.source})" for metric in METRICS.values()}
_TRAIT_LABELS: Final = {
    "compute_capability": "Compute capability",
    "vbios_version": "VBIOS",
    "persistence_mode": "Persistence mode",
    "compute_mode": "Compute mode",
    "ecc_mode": "ECC",
    "ecc_mode_pending": "ECC after the next reset",
    "mig_mode": "MIG",
    "mig_mode_pending": "MIG after the next reset",
}

Entry = tuple[str, str, str]
"""Label, value, and note: why the value is missing, or else its meaning and source."""


def device_entries(device: Device) -> Iterator[Entry]:
    """Every value of a device."""
    problems = device.problems
    age = f", values {age_text(device.age_seconds)} old" if device.age_seconds else ""
    yield "State", device.state.value + age, _reason(problems, "state")
    count = None if device.processes is None else str(len(device.processes))
    yield _entry("Processes", count, problems, "processes", "state")
    yield from _share_entries(device.processes or ())
    for metric in METRICS.values():
        is_missing = device.get(metric.id) is None or device.is_stale(metric.id)
        note = _reason(problems, metric.id, "state") if is_missing else _MEANINGS[metric.id]
        yield metric.label, _metric_text(metric, device), note
    reasons = None if device.throttle_reasons is None else ", ".join(device.throttle_reasons) or "none"
    yield _entry("Throttle reasons", reasons, problems, "throttle_reasons", "state")
    yield _entry("UUID", device.uuid, problems, "uuid", "state")
    yield _entry("PCI bus id", device.pci_bus_id, problems, "pci_bus_id", "state")
    yield _entry("Architecture", device.architecture, problems, "architecture", "state")
    instance = device.instance
    if instance is not None:
        gpu_instance = None if instance.gpu_instance_id is None else str(instance.gpu_instance_id)
        compute_instance = None if instance.compute_instance_id is None else str(instance.compute_instance_id)
        yield _entry("GPU instance", gpu_instance, problems, "gpu_instance_id")
        yield _entry("Compute instance", compute_instance, problems, "compute_instance_id")
    cuda_index = None if device.cuda_index is None else str(device.cuda_index)
    yield _entry("CUDA index", cuda_index, problems, "cuda_index", "state")
    for field in DEVICE_ATTRIBUTES:
        label = _TRAIT_LABELS.get(field, field.replace("_", " ").capitalize())
        yield _entry(label, getattr(device, field), problems, field, "state")


def _metric_text(metric: Metric, device: Device) -> str:
    """A reading with its limit; energy also in kWh, by which it is paid."""
    text = limited_text(metric.id, device)
    value = device.get(metric.id)
    return text if metric.unit is not Unit.JOULES or value is None else f"{text}, {kilowatt_hours_text(value)}"


def _share_entries(processes: Sequence[Process]) -> Iterator[Entry]:
    """The share of each process of a device: SM utilization and memory; the note is its user and command."""
    ordered = sorted(processes, key=lambda process: (-(process.sm_percent or 0.0), -(process.memory_bytes or 0)))
    for process in ordered[:_MAX_PROCESSES]:
        problem = process.problems.get("sm_percent")
        missing = f"  (SM: {problem})" if problem is not None else ""
        note = f"{process.user or MISSING}  {process.command or MISSING}{missing}"
        use = f"SM {spaced_percent_text(process.sm_percent)}, memory {bytes_text(process.memory_bytes)}"
        yield f"  PID {process.pid}", use, note
    if len(ordered) > _MAX_PROCESSES:
        yield "", f"and {counted(len(ordered) - _MAX_PROCESSES, 'more process')}", "Those with the smallest shares."


def process_entries(process: Process, room: int) -> Iterator[Entry]:
    """Every value of a process; its command is wrapped to lines of ``room`` cells."""
    problems = process.problems
    cpu = None if process.cpu_percent is None else f"{number_text(process.cpu_percent, 1)} %"
    yield "PID", str(process.pid), "In the host's PID namespace."
    yield "Type", ", ".join(kind.value for kind in process.kinds), "The NVML process lists that contain the process."
    yield _entry("User", process.user, problems, "user", "command")
    yield _entry("GPU memory", bytes_text(process.memory_bytes), problems, "memory_bytes")
    yield _entry("SM utilization", spaced_percent_text(process.sm_percent), problems, "sm_percent")
    yield _entry("Host CPU", cpu, problems, "cpu_percent", "command")
    yield _entry("Host memory", bytes_text(process.host_memory_bytes), problems, "host_memory_bytes", "command")
    yield _entry("Age", age_text(process.age_seconds), problems, "age_seconds", "command")
    lines = wrap(process.command or MISSING, room, break_on_hyphens=False) or [MISSING]
    yield "Command", lines[0], _reason(problems, "command")
    for rest in lines[1:]:
        yield "", rest, ""


def _entry(label: str, value: str | Enum | None, problems: Mapping[str, Problem], *subjects: str) -> Entry:
    text = MISSING if value is None else str(value.value if isinstance(value, Enum) else value)
    return label, text, _reason(problems, *subjects)


def _reason(problems: Mapping[str, Problem], *subjects: str) -> str:
    """The first problem of one of the subjects, as text."""
    return next((str(problems[subject]) for subject in subjects if subject in problems), "")


@lru_cache(maxsize=_MAX_CACHED_LINES)
def entry_line(label: str, value: str, note: str, width: int) -> Line:
    """An entry as a line, without its note if there is no room for it."""
    room = width - LABEL_WIDTH - VALUE_WIDTH - 4
    if room < _MIN_NOTE_WIDTH:
        note = ""
    shown = clipped(note, room)
    return line(Span(f"{label:<{LABEL_WIDTH}} ", Role.ACCENT), f"{value:<{VALUE_WIDTH}} ", Span(shown, Role.DIM))
