"""The process table: what runs on the GPUs, and memory that nobody owns."""

from typing import Final, NamedTuple

from gpumon.core.model import Device, Frame, Process, ProcessKind
from gpumon.core.units import MISSING, bytes_text, duration_text, number_text
from gpumon.diagnosis.health import is_unattributed
from gpumon.ui.paint.columns import Align, Column
from gpumon.ui.paint.line import Role, Span

_KIND_LETTERS: Final = {ProcessKind.COMPUTE: "C", ProcessKind.GRAPHICS: "G", ProcessKind.MPS: "M"}


class ProcessRow(NamedTuple):
    """A process on a device; no process for memory that nobody owns."""

    device: Device
    process: Process | None


def process_rows(frame: Frame) -> list[ProcessRow]:
    """Processes by device, the largest first; memory that no process owns comes last on its device."""
    rows: list[ProcessRow] = []
    for device in frame.devices:
        held = sorted(device.processes or (), key=lambda process: (-_rounded(process.memory_bytes), process.pid))
        rows += [ProcessRow(device, process) for process in held]
        if is_unattributed(device):
            rows.append(ProcessRow(device, None))
    return rows


def process_key(row: ProcessRow) -> str:
    """What identifies a process row over time."""
    return f"{row.device.key}/{'' if row.process is None else row.process.pid}"


def _rounded(memory: int | None) -> int:
    """Memory in whole GiB, so that rows do not change places at every small change."""
    return -1 if memory is None else memory >> 30


def _process_index(row: ProcessRow, _: int) -> Span:
    return Span(row.device.label)


def _pid(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else str(row.process.pid))


def _user(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else row.process.user or MISSING)


def _kinds(row: ProcessRow, _: int) -> Span:
    return Span("?" if row.process is None else "".join(_KIND_LETTERS[kind] for kind in row.process.kinds))


def _process_memory(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span(bytes_text(row.device.get("memory_unattributed_bytes")), Role.WARNING)
    return Span(bytes_text(row.process.memory_bytes))


def _process_cpu(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else number_text(row.process.cpu_percent))


def _process_host_memory(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else bytes_text(row.process.host_memory_bytes))


def _process_age(row: ProcessRow, _: int) -> Span:
    return Span(MISSING if row.process is None else duration_text(row.process.age_seconds))


def _command(row: ProcessRow, _: int) -> Span:
    if row.process is None:
        return Span("! memory that no visible process owns", Role.WARNING)
    if row.process.command is None:
        return Span("gone, or in another PID namespace", Role.DIM)
    program, _space, rest = row.process.command.partition(" ")
    return Span(f"{program.rpartition('/')[2]} {rest}".rstrip())


PROCESS_COLUMNS: Final[tuple[Column[ProcessRow], ...]] = (
    Column("GPU", 3, _process_index, rank=0),
    Column("PID", 7, _pid, rank=0),
    Column("User", 9, _user, rank=2, align=Align.LEFT),
    Column("Type", 4, _kinds, rank=6, align=Align.LEFT),
    Column("GPU mem", 8, _process_memory, rank=1),
    Column("CPU%", 5, _process_cpu, rank=3),
    Column("Host mem", 8, _process_host_memory, rank=5),
    Column("Age", 6, _process_age, rank=4),
    Column("Command", 12, _command, rank=1, align=Align.LEFT, stretches=True),
)
"""What does not change while a process runs stands at the right."""
