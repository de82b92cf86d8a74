"""The process table: the processes on each GPU, unattributed memory, and process lists that cannot be read."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame, Process, ProcessKind
from gpumon.core.problems import Problem
from gpumon.core.units import MISSING, bytes_text, duration_text, number_text
from gpumon.diagnosis.alerts import is_unattributed
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.paint.table import Align, Column, PlacedColumn, row_line, table_width

_KIND_LETTERS: Final = {ProcessKind.COMPUTE: "C", ProcessKind.GRAPHICS: "G", ProcessKind.MPS: "M"}


class ProcessRow(NamedTuple):
    """A row of the table.

    Attributes:
        device: The device; for a list that cannot be read, the first device with that problem.
        process: The process, or None for unattributed memory and for a list that cannot be read.
        unread: Why the process list of ``unread_devices`` cannot be read, or None.
        unread_devices: Labels of the devices with that problem, separated by commas; empty if it is all of them.
    """

    device: Device
    process: Process | None
    unread: Problem | None = None
    unread_devices: str = ""


def process_rows(frame: Frame) -> list[ProcessRow]:
    """Processes by device, the largest first, each device's unattributed memory, then the lists that cannot be read."""
    rows: list[ProcessRow] = []
    for device in frame.devices:
        processes = sorted(device.processes or (), key=lambda process: (-_rounded(process.memory_bytes), process.pid))
        rows += [ProcessRow(device, process) for process in processes]
        if is_unattributed(device):
            rows.append(ProcessRow(device, None))
    return rows + _unread_rows(frame)


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
    if row.unread is None:
        return row_line(columns, row)
    where = f" of GPU {row.unread_devices}" if row.unread_devices else ""
    return line(Span(clipped(f"! Process list{where} not available: {row.unread}", table_width(columns)), Role.WARNING))


def _rounded(memory: int | None) -> int:
    """Memory in GiB, rounded down, so that rows do not change places with every small change."""
    return -1 if memory is None else memory >> 30


def _index(row: ProcessRow, _: int) -> Span:
    return Span(row.device.label)


def _pid(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else str(row.process.pid))


def _user(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else row.process.user or MISSING)


def _kinds(row: ProcessRow, _: int) -> Span:
    return Span("?" if row.process is None else "".join(_KIND_LETTERS[kind] for kind in row.process.kinds))


def _memory(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span(bytes_text(row.device.get("memory_unattributed_bytes")), Role.WARNING)
    return Span(bytes_text(row.process.memory_bytes))


def _cpu(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else number_text(row.process.cpu_percent))


def _host_memory(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else bytes_text(row.process.host_memory_bytes))


def _age(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else duration_text(row.process.age_seconds))


def _command(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span("! unattributed: no visible process owns this memory", Role.WARNING)
    if row.process.command is None:
        return Span("exited, or in another PID namespace", Role.DIM)
    program, _space, arguments = row.process.command.partition(" ")
    return Span(f"{program.rpartition('/')[2]} {arguments}".rstrip())


PROCESS_COLUMNS: Final[tuple[Column[ProcessRow], ...]] = (
    Column("GPU", 3, _index, rank=0),
    Column("PID", 7, _pid, rank=0),
    Column("User", 9, _user, rank=2, align=Align.LEFT),
    Column("Type", 4, _kinds, rank=6, align=Align.LEFT),
    Column("GPU mem", 8, _memory, rank=1),
    Column("CPU%", 5, _cpu, rank=3),
    Column("Host mem", 8, _host_memory, rank=5),
    Column("Age", 6, _age, rank=4),
    Column("Command", 12, _command, rank=1, align=Align.LEFT, stretches=True),
)
"""Values that stay the same while a process runs stand at the right."""
