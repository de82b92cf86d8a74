"""Builds what gpumon shows of a trace from its events."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any, Final, NamedTuple

from gpumon.core.source_file import UnreadableError
from gpumon.core.step_classes import COMMUNICATION, CPU_CLASSES, GPU_CLASSES, HOST
from gpumon.core.text import safe_text
from gpumon.core.units import counted
from gpumon.traces.columns import write_columns
from gpumon.traces.critical_path import critical_path
from gpumon.traces.device_time import (
    NO_WORK,
    IdleGap,
    IdleReasons,
    add_gap,
    divide_device_time,
    operator_pieces,
    work_class,
    work_events,
)
from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import Kind, kernel_class
from gpumon.traces.model import ClassTime, Collective, Gap, Total, Trace, TracedStep
from gpumon.traces.pieces import TimePieces
from gpumon.traces.step_graph import NO_GRAPH, GraphBuilder
from gpumon.traces.steps import (
    BEHIND,
    COMPLETE,
    ClassNames,
    StepRange,
    account_of,
    class_times,
    find_steps,
    line_of,
    median_step,
    steps_on_device,
)
from gpumon.traces.table import EventTable
from gpumon.traces.what_if import without

_MAX_TOTALS: Final = 2_000
_MAX_OPERATORS: Final = 500
_MAX_STEP_EVENTS: Final = 300_000
"""The graph of a step takes 600 bytes for each event; a step with more is a trace without steps."""
_LARGE: Final = f"The critical path is not computed for steps of more than {_MAX_STEP_EVENTS:,} events."
_MAX_GAPS: Final = 1_000
_MAX_COLLECTIVES: Final = 20_000
_BEHIND: Final = "No step is complete: the trace ends before the GPU has done the work of a step. Record a longer one."
_NO_OPERATOR: Final = "Python and other code outside of operators"
_HOST_KINDS: Final = frozenset((Kind.OPERATOR, Kind.ANNOTATION))
_KIND_NAMES: Final = {kind: kind.name.lower() for kind in Kind}


class TraceFile(NamedTuple):
    """The file of a trace.

    Attributes:
        name: Its path as safe text.
        size_bytes: Its size.
        header: The keys of the document other than the events.
        damage: Why the events end early, as a clause; empty if they are complete.
    """

    name: str
    size_bytes: int
    header: Mapping[str, Any]
    damage: str


def build_trace(table: EventTable, file: TraceFile, columns: int) -> Trace:
    """Build a trace.

    ``columns`` is the descriptor of the file that receives the columns of the timeline.

    Raises:
        UnreadableError: The file has no events that take time.
    """
    if not len(table):
        raise UnreadableError(file.damage or "contains no events of torch.profiler")
    begin = min(table.begins)
    end = max(table.ends)
    host = HostWork(table)
    device, work = work_events(table)
    step_source, steps, host_steps, is_behind = _steps(table, host, work, begin, end)
    index = median_step(steps)
    gaps: tuple[Gap, ...] = ()
    names = ClassNames(CPU_CLASSES, _NO_OPERATOR) if device is None else ClassNames(GPU_CLASSES, NO_WORK)
    if device is not None:
        pieces, idle = _device_pieces(table, host, work, begin, end)
        gaps = _gaps(table, host, idle, begin)
        totals = _kernel_totals(table, work)
    else:
        pieces = TimePieces() if host.main_lane is None else operator_pieces(table, host.main_lane)
        totals = _operator_totals(table, pieces, begin, end)
    classes = class_times(table, host, pieces, steps, names)
    step = next(step for step in host_steps if step.label == steps[index].label)
    is_large = sum(step.begin <= moment < step.end for moment in table.begins) > _MAX_STEP_EVENTS
    graph = NO_GRAPH
    if not is_large:
        graph = GraphBuilder(table, host, work).build(step, steps[index], is_repeated=step_source != COMPLETE)
    path = critical_path(table, graph)
    kernels_ns = _kernel_times(table, work, steps[index])
    rank, world_size = _rank(file.header)
    return Trace(
        name=file.name,
        size_bytes=file.size_bytes,
        rank=rank,
        world_size=world_size,
        device=None if device is None else _device_name(file.header, device),
        duration_ns=end - begin,
        start_ns=begin + _base(file.header),
        events={_KIND_NAMES[kind]: table.counts[kind] for kind in Kind if table.counts[kind]},
        step_source=step_source,
        steps=tuple(TracedStep(step.label, step.begin - begin, step.end - begin) for step in steps),
        median=index,
        classes=classes,
        kernels=len(kernels_ns),
        median_kernel_ns=median_low(kernels_ns) if kernels_ns else None,
        problems=_problems(table, device, file.damage, steps[index], classes) + ((_BEHIND,) if is_behind else ()),
        notes=_notes(table, device) + ((_LARGE,) if is_large else ()),
        totals=totals,
        operators=() if device is None else _host_operators(table, steps[0].begin, steps[-1].end),
        gaps=gaps,
        collectives=_collectives(table, work, begin),
        critical=account_of(table, host, path, names, sum(time for time, _ in path)),
        without=without(table, graph, _capability(file.header, device)),
        lanes=write_columns(table, [piece for _, piece in path], begin, end - begin, columns),
        texts=tuple(table.texts),
    )


def _steps(
    table: EventTable, host: HostWork, work: list[int], begin: int, end: int
) -> tuple[str, Sequence[StepRange], Sequence[StepRange], bool]:
    """How the steps were found, the steps of the GPU and of the host, and whether the GPU's could not be found."""
    source, steps = find_steps(table, host, begin, end)
    if source == COMPLETE:
        return source, steps, steps, False
    aligned = steps_on_device(table, host, work, steps)
    if aligned and aligned != steps:
        source = f"{source}, {BEHIND}"
    return source, aligned or steps, steps, not aligned


def _kernel_times(table: EventTable, work: list[int], step: StepRange) -> list[int]:
    """How long each kernel took that began in a step."""
    return [
        table.ends[event] - table.begins[event]
        for event in work
        if table.kinds[event] == Kind.KERNEL and step.begin <= table.begins[event] < step.end
    ]


def _device_pieces(
    table: EventTable, host: HostWork, work: list[int], begin: int, end: int
) -> tuple[TimePieces, list[IdleGap]]:
    """The pieces of the time of a GPU from the begin to the end of the trace, and the longest gaps."""
    pieces, idle = TimePieces(), IdleReasons(table, host)
    longest: list[IdleGap] = []

    def add(first: int, last: int, next_event: int | None) -> None:
        gap = idle.divide(first, last, next_event)
        add_gap(pieces, gap)
        longest.append(gap)
        if len(longest) >= 4 * _MAX_GAPS:
            longest.sort(key=lambda item: item.begin - item.end)
            del longest[_MAX_GAPS:]

    if begin < table.begins[work[0]]:
        add(begin, table.begins[work[0]], work[0])
    divide_device_time(table, work, pieces, add)
    last_end = max(table.ends[event] for event in work)
    if last_end < end:
        add(last_end, end, None)
    longest.sort(key=lambda item: item.begin - item.end)
    return pieces, longest[:_MAX_GAPS]


def _gaps(table: EventTable, host: HostWork, idle: list[IdleGap], begin: int) -> tuple[Gap, ...]:
    result = []
    for gap in idle:
        time: Counter[int] = Counter()
        for piece in gap.pieces:
            time[piece.share] += piece.length
        cause = max(time, key=lambda share: time[share])
        longest = max((piece for piece in gap.pieces if piece.share == cause), key=lambda piece: piece.length)
        after = "" if gap.next_event is None else table.texts[table.names[gap.next_event]]
        result.append(
            Gap(
                gap.begin - begin,
                gap.end - gap.begin,
                GPU_CLASSES[cause],
                table.texts[longest.name],
                after,
                line_of(table, host, longest),
            )
        )
    return tuple(result)


def _kernel_totals(table: EventTable, work: list[int]) -> tuple[Total, ...]:
    sums: dict[tuple[int, int], list[int]] = {}
    for event in work:
        entry = sums.setdefault((table.names[event], work_class(table, event)), [0, 0, 0])
        duration = table.ends[event] - table.begins[event]
        entry[0] += duration
        entry[1] += 1
        entry[2] = max(entry[2], duration)
    totals = [Total(table.texts[name], GPU_CLASSES[share], *entry) for (name, share), entry in sums.items()]
    return tuple(sorted(totals, key=lambda total: -total.time_ns)[:_MAX_TOTALS])


def _operator_totals(table: EventTable, pieces: TimePieces, begin: int, end: int) -> tuple[Total, ...]:
    """The operators of the main thread with the time that they take themselves."""
    sums: dict[tuple[int, int], list[int]] = {}
    counted_events: set[int] = set()
    for piece in pieces.within(begin, end):
        entry = sums.setdefault((piece.name, piece.share), [0, 0, 0])
        entry[0] += piece.length
        entry[2] = max(entry[2], piece.length)
        if piece.event not in counted_events:
            counted_events.add(piece.event)
            entry[1] += 1
    totals = [Total(table.texts[name], CPU_CLASSES[share], *entry) for (name, share), entry in sums.items()]
    return tuple(sorted(totals, key=lambda total: -total.time_ns)[:_MAX_TOTALS])


def _host_operators(table: EventTable, begin: int, end: int) -> tuple[Total, ...]:
    """The operators and annotations of the host that begin in a time range, each with the time of what it calls."""
    sums: dict[int, list[int]] = {}
    for index, kind in enumerate(table.kinds):
        if kind in _HOST_KINDS and begin <= table.begins[index] < end:
            duration = table.ends[index] - table.begins[index]
            entry = sums.setdefault(table.names[index], [0, 0, 0])
            entry[0] += duration
            entry[1] += 1
            entry[2] = max(entry[2], duration)
    totals = [Total(table.texts[name], HOST, *entry) for name, entry in sums.items()]
    return tuple(sorted(totals, key=lambda total: -total.time_ns)[:_MAX_OPERATORS])


def _collectives(table: EventTable, work: list[int], begin: int) -> tuple[Collective, ...]:
    result = []
    for event in work:
        if table.kinds[event] == Kind.KERNEL and kernel_class(table.texts[table.names[event]]) == COMMUNICATION:
            facts = table.collectives.get(event)
            name = f"{facts.name} {facts.group}".strip() if facts else table.texts[table.names[event]]
            result.append(Collective(name, table.begins[event] - begin, table.ends[event] - table.begins[event]))
            if len(result) >= _MAX_COLLECTIVES:
                break
    return tuple(result)


def _problems(
    table: EventTable, device: str | None, damage: str, step: StepRange, classes: tuple[ClassTime, ...]
) -> tuple[str, ...]:
    problems = []
    if damage:
        problems.append(f"The file {damage}: events are missing.")
    if device is None and table.counts[Kind.RUNTIME]:
        problems.append("The trace has calls of the CUDA runtime, but no work on a GPU: it was not recorded.")
    elif device is None:
        problems.append("The trace has no work on a GPU: the account is one of operators on the CPU.")
    elif not table.counts[Kind.KERNEL]:
        problems.append("The trace has no kernels.")
    if device is not None and not any(item.time_ns for item in classes[: GPU_CLASSES.index("data")]):
        problems.append("The GPU did nothing in the median step.")
    if step.end <= step.begin:
        problems.append("The step has no duration.")
    return tuple(problems)


def _notes(table: EventTable, device: str | None) -> tuple[str, ...]:
    notes = []
    devices = {key.process for key in table.lane_keys if key.is_device}
    if device is not None and len(devices) > 1:
        others = ", ".join(sorted(devices - {device}))
        notes.append(f"The account is about GPU {device}, which has the most work; the trace also has GPU {others}.")
    if device is not None and not table.counts[Kind.RUNTIME]:
        notes.append("The trace has no calls of the CUDA runtime: why the GPU was idle is less certain.")
    if table.rejected:
        notes.append(f"{counted(table.rejected, 'event')} with impossible values left out.")
    return tuple(notes)


def _rank(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    info = header.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    rank, size = info.get("rank"), info.get("world_size")
    return (
        rank if type(rank) is int and 0 <= rank < 1 << 24 else None,
        size if type(size) is int and 0 < size < 1 << 24 else None,
    )


def _base(header: Mapping[str, Any]) -> int:
    base = header.get("baseTimeNanoseconds")
    return base if type(base) is int and 0 <= base < 1 << 62 else 0


def _device_name(header: Mapping[str, Any], device: str) -> str:
    properties = header.get("deviceProperties")
    for item in properties if isinstance(properties, list) else ():
        if isinstance(item, dict) and str(item.get("id")) == device:
            return safe_text(f"GPU {device}, {item.get('name', '')}", 80).rstrip(", ")
    return f"GPU {device}"


def _capability(header: Mapping[str, Any], device: str | None) -> str:
    """The compute capability of a GPU; empty if the trace does not report it."""
    properties = header.get("deviceProperties")
    for item in properties if isinstance(properties, list) else ():
        if isinstance(item, dict) and str(item.get("id")) == device:
            return f"{item.get('computeMajor')}.{item.get('computeMinor')}"
    return ""
