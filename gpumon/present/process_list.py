"""The processes of all GPUs in one table, with what started them, since when they are idle, and groups with sums."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.core.model import Frame, Process
from gpumon.core.units import MISSING, bytes_text, counted, duration_text, number_text
from gpumon.operations.process_details import ProcessOrigin
from gpumon.present.device_owner import MIN_IDLE_SECONDS
from gpumon.present.paint.columns import Cells, columns, names
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, dim_if_missing, line
from gpumon.present.paint.table import PlacedColumn, row_line, table_width
from gpumon.present.process_table import PROCESS_CELLS, ProcessRow, process_key, process_rows, unread_line
from gpumon.session.process_registry import Identity, identity_of
from gpumon.session.view_state import ViewState

_LONG_IDLE_SECONDS: Final = 600.0
_MIN_LABEL: Final = 24
_MARK: Final = "*"
_NO_ORIGIN: Final = ProcessOrigin()


class Grouping(Enum):
    """By what rows are grouped."""

    NONE = "no groups"
    PARENT = "by parent"
    USER = "by user"
    JOB = "by job"


class GroupSums(NamedTuple):
    """The row above a group.

    Attributes:
        label: What its processes have in common.
        processes: Its processes; one that uses several GPUs counts once.
        memory_bytes: Sum of their device memory.
    """

    label: str
    processes: tuple[Process, ...]
    memory_bytes: int


class ListedProcess(NamedTuple):
    """A row of the table.

    Attributes:
        base: The process on a device, unattributed memory, or a list that cannot be read.
        origin: What started the process.
        idle_seconds: For how long it has run no kernels, None if it runs some or if that is unknown.
        is_marked: Whether the user has marked the process.
        group: The sums of a group; ``base`` is then that of its first process.
        has_probe: Whether a probe of the process is connected.
    """

    base: ProcessRow
    origin: ProcessOrigin = _NO_ORIGIN
    idle_seconds: float | None = None
    is_marked: bool = False
    group: GroupSums | None = None
    has_probe: bool = False

    @property
    def probe_text(self) -> str:
        """Whether the process has a probe, can get one, or why not; empty if that is unknown."""
        return "probe" if self.has_probe else self.origin.probe_word


def listed_processes(state: ViewState, marked: Collection[Identity] = ()) -> list[ListedProcess]:
    """Every row in its natural order: by device, the largest process first.

    Args:
        state: The moment.
        marked: Processes that the user has marked.
    """
    rows = []
    frame = state.frame
    devices_idle_since = {device.key: state.store.idle_since(device.key) for device in frame.devices}
    for base in process_rows(frame, state.probes.probes):
        process = base.process
        if process is None:
            rows.append(ListedProcess(base._replace(holders=state.processes.holders.get(base.device.key))))
            continue
        identity, key = identity_of(process), base.device.key
        idle = None
        if not process.sm_percent:
            history, device_since = state.processes.histories.get((*identity, key)), devices_idle_since[key]
            since = None if history is None else history.idle_since
            idle = _idle_seconds(since, None if device_since is None else device_since.seconds, frame)
        origin = state.processes.origins.get(identity, _NO_ORIGIN)
        probe = state.probes.probes.get(process.pid)
        has_probe = probe is not None and probe.connected
        rows.append(ListedProcess(base, origin, idle, identity in marked, has_probe=has_probe))
    return rows


def _idle_seconds(since: float | None, device_since: float | None, frame: Frame) -> float | None:
    """For how long a process has run no kernels: by its own samples, or because its device is idle."""
    if since is None or (device_since is not None and device_since < since):
        since = device_since
    return None if since is None else max(0.0, frame.monotonic_seconds - since)


def listed_key(row: ListedProcess) -> str:
    """Identifies a row over time."""
    return process_key(row.base) if row.group is None else f"group/{row.group.label}"


def listed_line(columns: Sequence[PlacedColumn[ListedProcess]], row: ListedProcess) -> Line:
    """A row in its columns, or the sums of a group across all of them."""
    if row.group is None:
        if row.base.unread is not None:
            return unread_line(row.base, table_width(columns))
        return row_line(columns, row)
    group = row.group
    cpu = _sum(process.cpu_percent for process in group.processes)
    memory = _sum(process.host_memory_bytes for process in group.processes)
    sums = (
        f"  {counted(len(group.processes), 'process')}  GPU mem {bytes_text(group.memory_bytes)}  "
        f"CPU {number_text(cpu)}%  host mem {bytes_text(memory)}"
    )
    width = table_width(columns)
    label = clipped(f"▾ {group.label}", max(_MIN_LABEL, width - len(sums)))
    return cut(line(Span(label, Role.ACCENT), sums), width)


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def processes_of(row: ListedProcess | None) -> tuple[Process, ...]:
    """The process of a row, or all processes of a group."""
    if row is None:
        return ()
    if row.group is not None:
        return row.group.processes
    return () if row.base.process is None else (row.base.process,)


def grouped(rows: Sequence[ListedProcess], grouping: Grouping) -> Sequence[ListedProcess]:
    """The rows by group, each below a row of sums; groups are in the order of their first rows.

    Rows without a process come last, in no group.
    """
    if grouping is Grouping.NONE:
        return rows
    label_of = {Grouping.PARENT: _parent_label, Grouping.USER: _user_label, Grouping.JOB: _job_label}[grouping]
    groups: dict[str, list[ListedProcess]] = {}
    rest = []
    for row in rows:
        if row.base.process is None:
            rest.append(row)
        else:
            groups.setdefault(label_of(row), []).append(row)
    result: list[ListedProcess] = []
    for label, members in groups.items():
        processes = {row.base.process.pid: row.base.process for row in members if row.base.process is not None}
        memory = sum(row.base.process.memory_bytes or 0 for row in members if row.base.process is not None)
        sums = GroupSums(label, tuple(processes.values()), memory)
        result.append(ListedProcess(members[0].base, group=sums))
        result += members
    return result + rest


def _parent_label(row: ListedProcess) -> str:
    origin = row.origin
    if origin.parent is None:
        return "parent unknown"
    return f"PID {origin.parent}  {origin.parent_command}".rstrip()


def _user_label(row: ListedProcess) -> str:
    return (row.base.process.user if row.base.process is not None else None) or "user unknown"


def _job_label(row: ListedProcess) -> str:
    job = row.origin.job or row.origin.pod
    return f"{row.origin.scheduler or 'pod'} {job}" if job else "no job"


def processes_title(rows: Sequence[ListedProcess], grouping: Grouping, marked: int) -> tuple[str, str]:
    """The title of the screen, and details for its right side."""
    processes = {row.base.process.pid: row.base.process for row in rows if row.base.process is not None}
    devices = {row.base.device.key for row in rows if row.base.process is not None}
    users = {process.user for process in processes.values() if process.user}
    title = f"{counted(len(processes), 'process')} on {counted(len(devices), 'GPU')}"
    details = [f"{marked} marked"] if marked else []
    details += [grouping.value] if grouping is not Grouping.NONE else []
    details += [counted(len(users), "user")] if users else []
    return title, "  ".join(details)


def no_rows_text(state: ViewState) -> str:
    """What stands in the place of the rows if there are none: without a GPU, why there is none."""
    if state.frame.devices:
        return "No process uses a GPU."
    return next((alert.detail for alert in state.alerts), "There is no GPU.")


def _idle(row: ListedProcess, _: int) -> Span:
    idle = row.idle_seconds
    if row.base.process is None or idle is None or idle < MIN_IDLE_SECONDS:
        return Span("")
    return Span(duration_text(idle), Role.WARNING if idle >= _LONG_IDLE_SECONDS else Role.PLAIN)


def _rank_text(row: ListedProcess) -> str:
    origin = row.origin
    return MISSING if origin.rank is None else f"{origin.rank}/{origin.world_size}"


def _pid(row: ListedProcess, _: int) -> Span:
    pid = MISSING if row.base.process is None else str(row.base.process.pid)
    return Span(f"{_MARK}{pid}", Role.ACCENT) if row.is_marked else Span(pid)


def _of_base(cells: Cells[ProcessRow]) -> Cells[ListedProcess]:
    """What the overview's table shows too."""
    base_key, base_text = cells.sort_key, cells.text
    return Cells(
        lambda row, width: cells.cell(row.base, width),
        None if base_key is None else lambda row: base_key(row.base),
        None if base_text is None else lambda row: base_text(row.base),
    )


_ORIGIN_CELLS: Final[Mapping[str, Cells[ListedProcess]]] = {
    "probe": names(lambda row: row.probe_text, missing=MISSING),
    "job": Cells(
        lambda row, _: dim_if_missing(row.origin.job or row.origin.pod or MISSING),
        lambda row: row.origin.job or row.origin.pod,
        lambda row: f"{row.origin.job or ''} {row.origin.pod or ''}",
    ),
    "rank": Cells(lambda row, _: dim_if_missing(_rank_text(row)), lambda row: row.origin.rank, _rank_text),
    "framework": names(lambda row: row.origin.framework, missing=MISSING),
    "container": names(lambda row: row.origin.container, missing=MISSING),
}
"""What a probe reports and what started a process."""
LISTED_COLUMNS: Final = columns(
    "all-processes",
    {
        **{name: _of_base(cells) for name, cells in PROCESS_CELLS.items()},
        "pid": Cells(_pid, lambda row: None if row.base.process is None else row.base.process.pid),
        "idle": Cells(_idle, lambda row: row.idle_seconds),
        **_ORIGIN_CELLS,
    },
)
