"""The process table: the processes on each GPU, unattributed memory, and process lists that cannot be read."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from gpumon.core.device_use import is_unattributed
from gpumon.core.model import Device, DeviceState, Frame, Process, ProcessKind
from gpumon.core.units import MISSING, age_text, duration_text, gibibytes_text, number_text, percent_of, short_time_text
from gpumon.operations.gpu_processes import Owner, owners_of
from gpumon.operations.program_name import without_interpreter
from gpumon.present.device_table import device_position
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.columns import Cells, columns, numbers
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, plain, width_of
from gpumon.present.paint.table import PlacedColumn, row_line, table_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.core.allocator import AllocatorStatistics
    from gpumon.core.problems import Problem
    from gpumon.core.steps import StepProgress
    from gpumon.operations.device_holders import Holders
    from gpumon.probe.messages import Probe

ValueT = TypeVar("ValueT")
_KIND_LETTERS: Final = {ProcessKind.COMPUTE: "C", ProcessKind.GRAPHICS: "G", ProcessKind.MPS: "M"}
_NOTABLE_AGE_SECONDS: Final = 3.0
_NO_OWNER: Final = "no visible process owns this memory"


class ProcessRow(NamedTuple):
    """A row of the table.

    Attributes:
        device: The device; for a list that cannot be read, the first device with that problem.
        process: The process, or None for unattributed memory and for a list that cannot be read.
        unread: Why the process list of ``unread_devices`` cannot be read, or None.
        unread_devices: Labels of the devices with that problem, separated by commas; empty if it is all of them.
        torch: PyTorch's allocator in the process, where a probe reports it.
        holders: Who could hold unattributed memory, if that was searched.
        training: The training run in the process, where a probe reports it.
    """

    device: Device
    process: Process | None
    unread: Problem | None = None
    unread_devices: str = ""
    torch: AllocatorStatistics | None = None
    holders: Holders | None = None
    training: StepProgress | None = None

    @property
    def step_seconds(self) -> float | None:
        """Duration of a step of the training run."""
        return None if self.training is None else self.training.step_seconds


def process_rows(
    frame: Frame, probes: Mapping[int, Probe] = MappingProxyType({}), scope: Device | None = None
) -> list[ProcessRow]:
    """Processes by device, the largest first, each device's unattributed memory, then the lists that cannot be read.

    Args:
        frame: The moment.
        probes: The probes of this host, by PID.
        scope: The device whose processes are listed; None for all devices.
    """
    rows: list[ProcessRow] = []
    for device in frame.devices if scope is None else (scope,):
        processes = sorted(device.processes or (), key=lambda process: (-_rounded(process.memory_bytes), process.pid))
        owners = _owners(device, probes)
        for process in processes:
            owner = owners.get(process.pid)
            reported = (None, None) if owner is None else (owner.statistics, owner.training)
            rows.append(ProcessRow(device, process, torch=reported[0], training=reported[1]))
        if is_unattributed(device):
            rows.append(ProcessRow(device, None))
    return rows + _unread_rows(frame)


def process_count(frame: Frame) -> int:
    """The number of rows that `process_rows` has for all devices."""
    listed = sum(len(device.processes or ()) + is_unattributed(device) for device in frame.devices)
    return listed + len(_unread_rows(frame))


def _owners(device: Device, probes: Mapping[int, Probe]) -> dict[int, Owner]:
    """What the probes report of the processes on a device, by the PID in the driver's list."""
    owners = owners_of(device, probes).owners if probes else ()
    return {owner.process.pid: owner for owner in owners if owner.process is not None}


def _unread_rows(frame: Frame) -> list[ProcessRow]:
    """A row per reason for which process lists cannot be read. The state of a lost GPU is shown in its own row."""
    responding = [device for device in frame.devices if device.state is DeviceState.OK]
    by_problem: dict[Problem, list[Device]] = {}
    for device in responding:
        problem = device.problems.get("processes")
        if device.processes is None and problem is not None:
            by_problem.setdefault(problem, []).append(device)
    rows = []
    for problem, devices in by_problem.items():
        is_all = len(devices) == len(responding)
        labels = "" if is_all else ", ".join(device.label for device in devices)
        rows.append(ProcessRow(devices[0], None, problem, labels))
    return rows


def process_key(row: ProcessRow) -> str:
    """Identifies a row over time."""
    return f"{row.device.key}/{'' if row.process is None else row.process.pid}"


def process_line(columns: Sequence[PlacedColumn[ProcessRow]], row: ProcessRow) -> Line:
    """A row in its columns, or across all of them why a process list cannot be read."""
    return row_line(columns, row) if row.unread is None else unread_line(row, table_width(columns))


def unread_line(row: ProcessRow, width: int) -> Line:
    """Why a process list cannot be read."""
    where = f" of GPU {row.unread_devices}" if row.unread_devices else ""
    return line(Span(clipped(f"! Process list{where} not available: {row.unread}", width), Role.WARNING))


def holders_text(holders: Holders | None) -> str:
    """Who could hold unattributed memory, as the rest of a sentence about it.

    Args:
        holders: What a search of /proc found, or None if there was none.
    """
    if holders is None:
        return _NO_OWNER
    names = [f"PID {holder.pid} {holder.name}".rstrip() for holder in holders.holders]
    hidden = "; this user may not see the open files of all processes" if holders.are_hidden else ""
    if not names:
        return f"{_NO_OWNER}{hidden}"
    return f"could be of {', '.join(names)}, with CUDA on this GPU{hidden}"


def no_process_line(device: Device | None) -> Line:
    """What stands in the place of the rows if there are none."""
    subject = "the GPUs" if device is None else f"GPU {device.label}"
    if device is not None and device.state is not DeviceState.OK:
        return line(Span(f"  GPU {device.label} does not respond: its processes are unknown.", Role.DIM))
    return line(Span(f"  No process uses {subject}.", Role.DIM))


def sm_age_text(devices: Iterable[Device]) -> str:
    """How old the oldest SM % is, where it is older than usual: many GPUs are sampled in turn."""
    age = max((device.sm_age_seconds or 0.0 for device in devices), default=0.0)
    return f"SM% {age_text(age)} old" if age >= _NOTABLE_AGE_SECONDS else ""


def scope_line(device: Device | None, shown: int, total: int, width: int, note: str = "") -> Line:
    """A rule above the table that names the GPU whose processes it has; None for all GPUs.

    Args:
        device: The GPU, or None.
        shown: Number of processes in the table.
        total: Number of processes on all GPUs.
        width: Cells of the line.
        note: What to say of the values.
    """
    name = "all GPUs" if device is None else f"GPU {device.label}"
    other = "this GPU" if device is None else "all GPUs"
    note = f"  {note}" if note else ""
    parts = line(
        Span("── ", Role.GRID), Span(f"Processes on {name}", Role.ACCENT), Span(f"  g: {other}{note} ", Role.DIM)
    )
    count = f" {shown} of {total} " if shown != total else f" {shown} "
    rule = max(0, width - width_of(plain(parts)) - width_of(count) - 2)
    return cut((*parts, Span("─" * rule, Role.GRID), Span(count, Role.DIM), Span("──", Role.GRID)), width)


def _rounded(memory: int | None) -> int:
    """Memory in GiB, rounded down, so that rows do not change places with every small change."""
    return -1 if memory is None else memory >> 30


def _memory(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span(gibibytes_text(row.device.get("memory_unattributed_bytes")), Role.WARNING)
    return Span(gibibytes_text(row.process.memory_bytes))


def _memory_percent(row: ProcessRow) -> float | None:
    """The share of the device's memory."""
    percent = percent_of(_sort_memory(row), row.device.get("memory_total_bytes"))
    return None if percent is None else min(100.0, percent)


def _memory_bar(row: ProcessRow, width: int) -> Line:
    percent = _memory_percent(row)
    return () if percent is None else fine_bar(percent / 100, width, Role.MEMORY_HISTORY)


def _torch(row: ProcessRow, _: int) -> Span:
    """Allocated and reserved GiB."""
    if row.torch is None:
        return Span(MISSING, Role.DIM)
    return Span(f"{gibibytes_text(row.torch.allocated_bytes)}/{gibibytes_text(row.torch.reserved_bytes)}")


def _command(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span(f"! unattributed: {holders_text(row.holders)}", Role.WARNING)
    if row.process.command is None:
        return Span("exited, or in another PID namespace", Role.DIM)
    return Span(without_interpreter(row.process.command))


def _of_process(value: Callable[[Process], ValueT | None]) -> Callable[[ProcessRow], ValueT | None]:
    """A value of the process, None for a row without one."""
    return lambda row: None if row.process is None else value(row.process)


def _numbers(
    value: Callable[[Process], float | None], text: Callable[[float | None], str] = number_text
) -> Cells[ProcessRow]:
    return numbers(_of_process(value), text, Span)


def _sort_memory(row: ProcessRow) -> float | None:
    if row.process is not None:
        return row.process.memory_bytes
    return None if row.unread is not None else row.device.get("memory_unattributed_bytes")


def _command_text(row: ProcessRow) -> str:
    """The complete command, which the cell shows without the interpreter and the folder of the program."""
    if row.unread is not None:
        return str(row.unread)
    return _command(row, 0).text if row.process is None else row.process.command or ""


PROCESS_CELLS: Final[Mapping[str, Cells[ProcessRow]]] = {
    "gpu": Cells(
        lambda row, _: Span(row.device.label), lambda row: None if row.unread else device_position(row.device)
    ),
    "pid": _numbers(lambda process: process.pid),
    "user": Cells(
        lambda row, _: Span((row.process and row.process.user) or MISSING), _of_process(lambda process: process.user)
    ),
    "type": Cells(
        lambda row, _: Span("".join(_KIND_LETTERS[kind] for kind in row.process.kinds) if row.process else "?")
    ),
    "sm": _numbers(lambda process: process.sm_percent),
    "memory": Cells(_memory, _sort_memory),
    "share": Cells(_memory_bar, _memory_percent),
    "torch": Cells(_torch, lambda row: None if row.torch is None else row.torch.allocated_bytes),
    "step": numbers(lambda row: row.step_seconds, short_time_text),
    "cpu": _numbers(lambda process: process.cpu_percent),
    "host-memory": _numbers(lambda process: process.host_memory_bytes, gibibytes_text),
    "age": _numbers(lambda process: process.age_seconds, duration_text),
    "command": Cells(_command, _of_process(lambda process: process.command), _command_text),
}
PROCESS_COLUMNS: Final = columns("processes", PROCESS_CELLS)
"""Values that stay the same while a process runs stand at the right."""
