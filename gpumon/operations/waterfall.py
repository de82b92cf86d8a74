"""The memory of a GPU from zero to its total: which process holds which part, what the part is, and what would free it.

The driver reports what each process holds, and PyTorch reports what it has reserved of that and for what. Memory that
belongs to no listed process is a remainder, and is shown as unattributed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, ProbeState
from gpumon.core.model import Device, DeviceState, Process, Switch
from gpumon.core.notebook import NotebookTable
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.steps import StepProgress
from gpumon.core.text_table import table
from gpumon.core.units import age_text, bytes_text
from gpumon.operations.gpu_processes import Owner, owners_of
from gpumon.operations.one_shot import sample_with_probes
from gpumon.probe.messages import Probe

_MAX_SKEW_BYTES: Final = 256 << 20
"""A larger difference between the driver's and PyTorch's values, which are read at different times, gets a note."""


class PartKind(str, Enum):
    """What a part of the memory is. The values are stable, public names."""

    DRIVER_RESERVED = "driver_reserved"
    CONTEXT = "context"
    ALLOCATED = "allocated"
    FREED_WAITING = "freed_waiting"
    RELEASABLE = "releasable"
    FRAGMENTED = "fragmented"
    CACHED = "cached"
    UNPROBED = "unprobed"
    UNATTRIBUTED = "unowned"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of a GPU's memory.

    Attributes:
        kind: What the part is.
        bytes: Its size; a process keeps all its parts, even empty ones, so that rows keep their places.
        pid: PID of the process that holds it, as gpumon sees it; None for a part that belongs to no process.
        label: Its name.
        meaning: What it is, in a sentence.
        remedy: What would free it, in a sentence; empty if nothing does.
    """

    kind: PartKind
    bytes: int
    pid: int | None
    label: str
    meaning: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The memory of a GPU.

    Attributes:
        total_bytes: Total memory, including the memory reserved by the driver.
        parts: From zero to the total, which is exactly their sum: reserved by the driver, the parts of each process
            by PID, unattributed, free. Empty if the parts are not known.
        problem: Why the parts are not known.
        notes: Further remarks, in sentences.
        owners: The processes that hold memory, by PID.
    """

    total_bytes: int
    parts: tuple[MemoryPart, ...] = ()
    problem: Problem | None = None
    notes: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuProcess(NotebookTable):
    """A process on one GPU, and what its memory there is.

    Attributes:
        device: The GPU, or a MIG instance.
        pid: PID as gpumon sees it.
        process: Its entry in the driver's list, or None if the driver does not list it.
        torch: The statistics of PyTorch's allocator for this GPU, if the process has a probe.
        training: Its training run, if its probe reports one.
        parts: What its memory is; empty for the reason in ``problem``.
        problem: Why the parts are not known.
        notes: Further remarks about the memory of the GPU, in sentences.
    """

    shown = ("gpu", "pid", "command", "memory_bytes")

    device: Device
    pid: int
    process: Process | None
    torch: AllocatorStatistics | None
    training: StepProgress | None
    parts: tuple[MemoryPart, ...] = ()
    problem: Problem | None = None
    notes: tuple[str, ...] = ()

    @property
    def gpu(self) -> str:
        """The label of the device."""
        return self.device.label

    @property
    def command(self) -> str | None:
        """Its command line; None if it is unknown."""
        return None if self.process is None else self.process.command

    @property
    def memory_bytes(self) -> int | None:
        """The device memory that it holds, as the driver reports it."""
        return None if self.process is None else self.process.memory_bytes


_TEXTS: Final[Mapping[str, Sequence[str]]] = {
    kind: (name, meaning, *remedy, "")[:3]
    for kind, name, meaning, *remedy in (row.split(" | ") for row in table("gpumon.operations", "memory_parts"))
}
"""The name of each kind of part, what it is, and how to get it free."""
_LOST: Final = Problem(ProblemCode.GPU_LOST, "The GPU is lost: its memory is not known.", "Reboot this host.")
_UNREAD: Final = Problem(ProblemCode.NOT_READ, "The driver did not report the total and used memory of this GPU.")
_CONTRADICTION: Final = Problem(
    ProblemCode.INVALID_VALUE, "The driver reports that processes hold more memory than the GPU has."
)


def waterfall(device: Device, probes: Mapping[int, Probe]) -> Waterfall:
    """Split the memory of a GPU into its parts."""
    total = int(device.get("memory_total_bytes") or 0)
    used = device.get("memory_used_bytes")
    owners, owner_notes = owners_of(device, probes)
    if (problem := _why_unknown(device)) is not None or used is None:
        return Waterfall(total, problem=problem or _UNREAD, owners=owners)
    driver = int(device.get("memory_reserved_bytes") or 0)
    reported_free = device.get("memory_free_bytes")
    free = max(0, int(total - used - driver if reported_free is None else reported_free))
    notes = [*_device_notes(device), *owner_notes]
    room = total - driver - sum(owner.memory_bytes or 0 for owner in owners)
    if room < 0:
        return Waterfall(total, problem=_CONTRADICTION, owners=owners)
    parts = [_part(PartKind.DRIVER_RESERVED, driver)] if driver else []
    for owner in owners:
        room, owner_parts = _owner_parts(owner, room, notes)
        parts += owner_parts
    free = min(free, room)
    parts += [_part(PartKind.UNATTRIBUTED, room - free), _part(PartKind.FREE, free)]
    return Waterfall(total, tuple(parts), notes=tuple(notes), owners=owners)


def sample_processes() -> tuple[GpuProcess, ...]:
    """The processes on the GPUs of this host, by GPU and PID.

    Raises:
        CommandError: There is no driver, or the collector sent no frame.
    """
    frame, probes, _ = sample_with_probes()
    problem = frame.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
    return tuple(process for device in frame.devices for process in _gpu_processes(device, waterfall(device, probes)))


def sample_process(pid: int) -> tuple[GpuProcess, ...]:
    """A process on each GPU that it uses.

    Raises:
        CommandError: It uses none, there is no driver, or the collector sent no frame.
    """
    processes = tuple(process for process in sample_processes() if process.pid == pid)
    if not processes:
        reason = f"Process {pid} uses no GPU of this host."
        remedy = "gpumon memory lists the processes on the GPUs; in a container, their PIDs may be those of the host."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, remedy)
    return processes


def _gpu_processes(device: Device, memory: Waterfall) -> Iterator[GpuProcess]:
    for owner in memory.owners:
        parts = tuple(part for part in memory.parts if part.pid == owner.pid)
        yield GpuProcess(
            device, owner.pid, owner.process, owner.statistics, owner.training, parts, memory.problem, memory.notes
        )


def _why_unknown(device: Device) -> Problem | None:
    """Why the parts of a device's memory are not known, if they are not."""
    if device.instance is None and device.mig_mode is Switch.ENABLED:
        return Problem(
            ProblemCode.NOT_SUPPORTED,
            "This GPU is partitioned (MIG): its memory belongs to its MIG instances.",
            "See the instances.",
        )
    for metric in ("memory_total_bytes", "memory_used_bytes"):
        if device.get(metric) is None:
            return device.problems.get(metric) or (_LOST if device.state is DeviceState.LOST else _UNREAD)
    return _LOST if device.state is DeviceState.LOST else None


def _device_notes(device: Device) -> Iterator[str]:
    if device.state is DeviceState.UNRESPONSIVE:
        yield f"The driver does not respond for this GPU: the values are {age_text(device.age_seconds)} old."
    elif device.is_stale("memory_used_bytes"):
        yield str(device.problems["memory_used_bytes"])
    if device.get("memory_reserved_bytes") is None:
        why = device.problems.get("memory_reserved_bytes")
        yield f"Memory reserved by the driver is part of unattributed. {'' if why is None else why}".rstrip()
    if device.processes is None:
        why = device.problems.get("processes")
        yield f"The processes are not known: their memory is unattributed. {'' if why is None else why}".rstrip()
    elif device.is_stale("processes"):
        yield f"The memory of the processes is not current. {device.problems['processes']}"


def _owner_parts(owner: Owner, room: int, notes: list[str]) -> tuple[int, list[MemoryPart]]:
    """The parts of a process, and what remains of ``room``, the memory not yet attributed to a process."""
    held, statistics = owner.memory_bytes, owner.statistics
    excess = 0 if statistics is None else max(0, statistics.reserved_bytes - (held or 0))
    if statistics is not None and excess <= room:
        if held is not None and excess > _MAX_SKEW_BYTES:
            notes.append(
                f"PyTorch in process {owner.pid} reserves {bytes_text(excess)} more than the driver reports for the "
                "process: the two values were read at different times."
            )
        return room - excess, list(_allocator_parts(owner, statistics))
    if statistics is not None:
        notes.append(
            f"PyTorch in process {owner.pid} reports {bytes_text(statistics.reserved_bytes)} reserved, which is more "
            "than this GPU can have given to it; the driver's value is shown."
        )
    if held is None:
        notes.append(f"The driver does not report the memory of process {owner.pid}; it is part of unattributed.")
        return room, []
    return room, [_unsplit_process(owner, held)]


def _allocator_parts(owner: Owner, statistics: AllocatorStatistics) -> Iterator[MemoryPart]:
    """The parts that the allocator of a process reports, limited to what it has reserved."""
    pid, reserved = owner.pid, statistics.reserved_bytes
    if owner.memory_bytes is not None:
        yield _part(PartKind.CONTEXT, max(0, owner.memory_bytes - reserved), pid)
    allocated = min(statistics.allocated_bytes, reserved)
    waiting = min(statistics.freed_waiting_bytes or 0, reserved - allocated)
    yield _part(PartKind.ALLOCATED, allocated, pid)
    yield _part(PartKind.FREED_WAITING, waiting, pid)
    cached = reserved - allocated - waiting
    if statistics.releasable_bytes is None or statistics.inactive_split_bytes is None or _is_expandable(owner):
        yield _part(PartKind.CACHED, cached, pid)
        return
    fragmented = min(statistics.inactive_split_bytes, cached)
    yield _part(PartKind.RELEASABLE, cached - fragmented, pid)
    yield _part(PartKind.FRAGMENTED, fragmented, pid)


def _is_expandable(owner: Owner) -> bool:
    """Whether the allocator uses expandable segments, for which PyTorch does not count inactive split memory."""
    return owner.probe is not None and owner.probe.reading is not None and bool(owner.probe.reading.expandable_segments)


def _unsplit_process(owner: Owner, held: int) -> MemoryPart:
    """A process of which only the driver's value is known; one with a probe says why PyTorch reports nothing."""
    kind = PartKind.UNPROBED
    label, meaning, remedy = _TEXTS[kind.value]
    if owner.probe is not None:
        meaning, remedy = f"PyTorch in this process reports nothing about this GPU: {_why_silent(owner.probe)}.", ""
    return MemoryPart(kind, held, owner.pid, label, meaning, remedy)


def _why_silent(probe: Probe) -> str:
    reading = probe.reading
    if reading is None:
        return "its probe has not reported yet"
    if reading.state is ProbeState.FAILED:
        return "its probe cannot read PyTorch" if reading.problem is None else reading.problem.reason.rstrip(".")
    return {
        ProbeState.WAITING_FOR_TORCH: "it has not imported PyTorch",
        ProbeState.CPU_ONLY: "its PyTorch is built without CUDA",
        ProbeState.WAITING_FOR_CUDA: "it has not created a CUDA context",
        ProbeState.LIVE: "it holds memory of this GPU outside PyTorch",
    }[reading.state]


def _part(kind: PartKind, size: int, pid: int | None = None) -> MemoryPart:
    return MemoryPart(kind, size, pid, *_TEXTS[kind.value])
