"""A frame, and the memory of its GPUs, as the JSON documents of ``gpumon status`` and ``gpumon memory``."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any, Final

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.frames import to_document
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Frame
from gpumon.core.problem_table import with_problems
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, Thresholds, check
from gpumon.operations.gpu_processes import owners_of
from gpumon.operations.waterfall import waterfall
from gpumon.probe.messages import Probe

MEMORY_SCHEMA: Final = 1

_METRICS: Final = tuple(field.name for field in fields(AllocatorStatistics) if field.name not in {"uuid", "name"})
_NOT_COUNTED: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "This version of PyTorch, or its configured allocator, does not count it."
)
_NOT_REPORTED: Final = Problem(ProblemCode.NOT_READ, "PyTorch in this process reports nothing about this GPU.")


def memory_document(frame: Frame, probes: Mapping[int, Probe], unheard: Iterable[Problem]) -> dict[str, Any]:
    """Return the memory of every GPU."""
    document = {
        "schema": MEMORY_SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "devices": [_device(device, probes) for device in frame.devices],
        "probes": [_probe(probes[pid], frame.monotonic_seconds) for pid in sorted(probes)],
        "unheard": [asdict(problem) for problem in unheard],
    }
    return with_problems(document, frame.problems)


def torch_document(probe: Probe, statistics: AllocatorStatistics | None, now: float) -> dict[str, Any]:
    """Return what the allocator of a process reports about one GPU."""
    all_fields = dict.fromkeys(_METRICS) if statistics is None else asdict(statistics)
    values = {name: all_fields[name] for name in _METRICS}
    why = _NOT_COUNTED if statistics is not None else (probe.reading and probe.reading.problem) or _NOT_REPORTED
    problems = {name: why for name, value in values.items() if value is None}
    return with_problems({**_state(probe, now), **values}, problems)


def _device(device: Device, probes: Mapping[int, Probe]) -> dict[str, Any]:
    memory = waterfall(device, probes)
    return {
        "index": device.index,
        "uuid": device.uuid,
        **({} if device.instance is None else {"mig_instance": asdict(device.instance)}),
        "name": device.name,
        "memory_total_bytes": memory.total_bytes or None,
        "parts": [asdict(part) for part in memory.parts],
        "notes": list(memory.notes),
        "problem": None if memory.problem is None else asdict(memory.problem),
    }


def _probe(probe: Probe, now: float) -> dict[str, Any]:
    process, reading = probe.process, probe.reading
    return {
        "pid": process.pid,
        "own_pid": process.own_pid,
        "command": process.command,
        "python_version": process.python_version,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "world_size": process.world_size,
        "settings": dict(process.settings),
        **_state(probe, now),
        "pinned": None if reading is None or reading.pinned is None else asdict(reading.pinned),
        "cost": None if reading is None or reading.cost is None else asdict(reading.cost),
        "oom_files": [] if reading is None else list(reading.oom_files),
    }


def _state(probe: Probe, now: float) -> dict[str, Any]:
    reading = probe.reading
    return {
        "state": None if reading is None else reading.state.value,
        "torch_version": None if reading is None else reading.torch_version,
        "backend": None if reading is None else reading.backend,
        "expandable_segments": None if reading is None else reading.expandable_segments,
        "age_seconds": None if reading is None else round(probe.age_seconds(now), 3),
    }


def status_document(
    frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS, probes: Mapping[int, Probe] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the document of the frame codec, with alerts and with the PyTorch memory that probes report.

    Alerts that need a history, such as a counter that increases, are not part of it.
    """
    document = to_document(frame)
    alerts = check(frame, thresholds)
    for device, entry in zip(frame.devices, document["devices"], strict=True):
        entry["alerts"] = [alert_document(alert) for alert in alerts if alert.device_key == device.key]
        _add_torch(device, entry, probes, frame.monotonic_seconds)
    document["alerts"] = [alert_document(alert) for alert in alerts if alert.device_key is None]
    return document


def _add_torch(device: Device, entry: dict[str, Any], probes: Mapping[int, Probe], now: float) -> None:
    """Add the statistics of PyTorch's allocator to the entry of each process that has a probe."""
    if not probes or device.processes is None:
        return
    processes = {process["pid"]: process for process in entry["processes"]}
    for owner in owners_of(device, probes).owners:
        if owner.probe is not None and owner.process is not None:
            processes[owner.process.pid]["torch"] = torch_document(owner.probe, owner.statistics, now)


CSV_COLUMNS: Final = ("time_seconds", "index", "uuid", "name", "state", *METRICS)
"""The columns of `csv_row`."""


def csv_row(frame: Frame, device: Device) -> tuple[object, ...]:
    """Every value of a device, None for one that is missing, in the columns of `CSV_COLUMNS`."""
    values = (device.get(metric) for metric in METRICS)
    return (f"{frame.time_seconds:.3f}", device.label, device.uuid, device.name, device.state.value, *values)


def alert_document(alert: Alert) -> dict[str, Any]:
    """An alert as JSON has it."""
    return {
        "id": alert.id,
        "severity": alert.severity.value,
        "since_seconds": round(alert.since_seconds, 3),
        "detail": alert.detail,
        "action": alert.action,
    }
