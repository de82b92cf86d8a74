"""The memory of GPUs as JSON documents: ``gpumon memory --json``, and ``torch`` in ``gpumon status --json``."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.model import Device, Frame
from gpumon.core.problem_table import with_problems
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.waterfall import waterfall
from gpumon.probe.messages import Probe

SCHEMA: Final = 1

_DEVICE_FIELDS: Final = frozenset({"uuid", "name"})
_METRICS: Final = tuple(field.name for field in fields(AllocatorStatistics) if field.name not in _DEVICE_FIELDS)
_NOT_COUNTED: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "This version of PyTorch, or its configured allocator, does not count it."
)
_NOT_REPORTED: Final = Problem(ProblemCode.NOT_READ, "PyTorch in this process reports nothing about this GPU.")


def memory_document(frame: Frame, probes: Mapping[int, Probe], unheard: Iterable[Problem]) -> dict[str, Any]:
    """Return the memory of every GPU."""
    document = {
        "schema": SCHEMA,
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
