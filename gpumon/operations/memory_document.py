"""Where GPUs' memory is, as JSON documents: what ``gpumon memory --json`` prints, and ``torch`` in that of status."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.reasons import in_full
from gpumon.operations.memory import waterfall
from gpumon.probe.news import Probe

SCHEMA: Final = 1

_OF_THE_DEVICE: Final = frozenset({"uuid", "name"})
_FIGURES: Final = tuple(each.name for each in fields(AllocatorStatistics) if each.name not in _OF_THE_DEVICE)
_NOT_KEPT: Final = Problem(ProblemCode.NOT_SUPPORTED, "This PyTorch, or the allocator it was set to, does not keep it.")
_NOTHING_YET: Final = Problem(ProblemCode.NOT_READ, "PyTorch in this process tells nothing of this GPU.")


def memory_document(frame: Frame, probes: Mapping[int, Probe], unheard: Iterable[Problem]) -> dict[str, Any]:
    """The memory of every GPU.

    Args:
        frame: The machine.
        probes: The probes in its processes, by PID as gpumon sees it.
        unheard: Why some probes were not listened to.
    """
    document = {
        "schema": SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "devices": [_device(device, probes) for device in frame.devices],
        "probes": [_probe(probes[pid], frame.monotonic_seconds) for pid in sorted(probes)],
        "unheard": [asdict(problem) for problem in unheard],
    }
    return in_full(document, frame.problems)


def torch_document(probe: Probe, statistics: AllocatorStatistics | None, now: float) -> dict[str, Any]:
    """What a process's allocator says of one GPU.

    Args:
        probe: The process.
        statistics: Its figures of that GPU, or None if it tells of none.
        now: Monotonic seconds.
    """
    told = dict.fromkeys(_FIGURES) if statistics is None else asdict(statistics)
    figures = {name: told[name] for name in _FIGURES}
    why = _NOT_KEPT if statistics is not None else (probe.reading and probe.reading.problem) or _NOTHING_YET
    problems = {name: why for name, value in figures.items() if value is None}
    return in_full({**_state(probe, now), **figures}, problems)


def _device(device: Device, probes: Mapping[int, Probe]) -> dict[str, Any]:
    found = waterfall(device, probes)
    return {
        "index": device.index,
        "uuid": device.uuid,
        **({} if device.instance is None else {"mig_instance": asdict(device.instance)}),
        "name": device.name,
        "memory_total_bytes": found.total_bytes or None,
        "parts": [asdict(part) for part in found.parts],
        "notes": list(found.notes),
        "problem": None if found.problem is None else asdict(found.problem),
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
