"""The timeline of a trace: streams and threads as lanes, a part of the time, a cursor, and the next event by name."""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from gpumon.core.step_classes import LABELS
from gpumon.present.account_rows import class_role
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, merged
from gpumon.present.trace_account import ns_text, timeline_role, work_label
from gpumon.traces.columns import BINS, FIRST_FRAME, TIMELINE_CLASSES
from gpumon.traces.model import Trace
from gpumon.traces.reader import OpenTrace

LABEL_WIDTH: Final = 20
_MARKS: Final = " ▁▂▃▄▅▆▇█"
_MAX_EXACT: Final = 20_000
"""With more events of a lane in view, its cells are made from the shares that were computed in advance."""
_MAX_BACK: Final = 2_000
"""Events before the view, and before the cursor, among which one that lasts until there is looked for."""
_MIN_VIEW_NS: Final = 100
_ZOOM: Final = 2.0
_MARGIN: Final = 0.1
_TICKS: Final = 4
_MAX_NESTED: Final = 64
_MAX_OTHER_LANES: Final = 64
"""Lanes after these are only searched for the event under the cursor while they are selected."""
_NANOSECOND_DECIMALS: Final = 6


class NamedEvent(NamedTuple):
    """An event under the cursor."""

    name: str
    begin: int
    end: int
    share: int


class TraceTimeline:
    """A part of the time of a trace, and a cursor in it. Times are nanoseconds from the begin of the trace.

    Attributes:
        begin: Where the view begins.
        end: Where it ends.
        cursor: The moment under the cursor.
    """

    def __init__(self, opened: OpenTrace) -> None:
        self._trace, self._columns = opened
        step = self._trace.step
        margin = int(_MARGIN * self._trace.step_ns)
        self.begin = max(0, step.begin_ns - margin)
        self.end = max(self.begin + _MIN_VIEW_NS, min(self._trace.duration_ns, step.end_ns + margin))
        self.cursor = (self.begin + self.end) // 2

    def zoom(self, direction: int) -> None:
        """Show less time (1) or more time (-1) around the cursor."""
        length = self.end - self.begin
        wanted = length / _ZOOM if direction > 0 else length * _ZOOM
        new = max(_MIN_VIEW_NS, min(int(wanted), max(_MIN_VIEW_NS, self._trace.duration_ns)))
        part = (self.cursor - self.begin) / length
        self._show(self.cursor - int(part * new), new)

    def move(self, cells: int, width: int) -> None:
        """Move the cursor by cells of a lane; the view follows."""
        cell = max(1, (self.end - self.begin) // max(1, width))
        self.cursor = max(0, min(self._trace.duration_ns, self.cursor + cells * cell))
        length = self.end - self.begin
        if not self.begin <= self.cursor < self.end:
            self._show(self.cursor - length // 2, length)

    def go_to(self, moment: int, length: int = 0) -> None:
        """Put the cursor on a moment, in the middle of a view that shows at least a length."""
        self.cursor = max(0, min(self._trace.duration_ns, moment))
        size = max(self.end - self.begin, 2 * length)
        if not self.begin <= self.cursor < self.end or size > self.end - self.begin:
            self._show(self.cursor - size // 2, size)

    def find(self, text: str) -> bool:
        """Put the cursor on the next event whose name contains a text, the first one after the last; False if none."""
        wanted = text.lower()
        numbers = {number for number, name in enumerate(self._trace.texts) if wanted in name.lower()}
        moment = self._next(numbers, self.cursor + 1)
        if moment is None:
            moment = self._next(numbers, 0)
        if moment is not None:
            self.go_to(moment)
        return moment is not None

    def _next(self, numbers: set[int], start: int) -> int | None:
        best: int | None = None
        begins, names = self._columns.begins, self._columns.names
        for lane in self._trace.lanes if numbers else ():
            last = lane.first + lane.count
            for index in range(bisect_left(begins, start, lane.first, last), last):
                if best is not None and begins[index] >= best:
                    break
                if names[index] in numbers:
                    best = begins[index]
                    break
        return best

    def _show(self, begin: int, length: int) -> None:
        self.begin = max(0, min(begin, self._trace.duration_ns - length))
        self.end = self.begin + length

    def cells(self, lane_index: int, width: int) -> list[tuple[float, int]]:
        """The busy share and the class of each cell of a lane."""
        lane = self._trace.lanes[lane_index]
        begins = self._columns.begins
        first = bisect_left(begins, self.begin, lane.first, lane.first + lane.count)
        last = bisect_left(begins, self.end, first, lane.first + lane.count)
        size = (self.end - self.begin) / width
        if last - first > _MAX_EXACT and (self.end - self.begin) * BINS >= self._trace.duration_ns * width:
            return self._binned(lane_index, width, size)
        return self._exact(max(lane.first, first - _MAX_BACK), last, width, size)

    def _exact(self, first: int, last: int, width: int, size: float) -> list[tuple[float, int]]:
        columns = self._columns
        busy = [0.0] * width
        longest = [(0.0, 0)] * width
        until = self.begin
        for index in range(first, last):
            share = columns.classes[index]
            begin, end = max(columns.begins[index], until), min(columns.ends[index], self.end)
            if end <= begin or share >= FIRST_FRAME:
                continue
            until = end
            position = (begin - self.begin) / size
            stop = (end - self.begin) / size
            cell = int(position)
            while position < stop and cell < width:
                piece = min(stop, cell + 1) - position
                busy[cell] += piece
                if piece > longest[cell][0]:
                    longest[cell] = (piece, share)
                cell += 1
                position = cell
        return [(part, share) for part, (_, share) in zip(busy, longest, strict=True)]

    def _binned(self, lane_index: int, width: int, size: float) -> list[tuple[float, int]]:
        shares, classes = self._columns.shares(lane_index), self._columns.bin_classes(lane_index)
        bin_size = max(1, -(-self._trace.duration_ns // BINS))
        cells = []
        for cell in range(width):
            first = min(BINS - 1, int((self.begin + cell * size) / bin_size))
            last = max(first + 1, min(BINS, int((self.begin + (cell + 1) * size) / bin_size)))
            fullest = max(range(first, last), key=lambda number: shares[number])
            cells.append((sum(shares[first:last]) / (255 * (last - first)), classes[fullest]))
        return cells

    def events_at(self, lane_index: int, moment: int) -> list[NamedEvent]:
        """The events of a lane at a moment, the outermost first."""
        lane, columns = self._trace.lanes[lane_index], self._columns
        stop = bisect_right(columns.begins, moment, lane.first, lane.first + lane.count)
        result = []
        for index in range(stop - 1, max(lane.first, stop - _MAX_BACK) - 1, -1):
            if columns.ends[index] > moment:
                name = self._trace.texts[columns.names[index]]
                result.append(NamedEvent(name, columns.begins[index], columns.ends[index], columns.classes[index]))
                if len(result) >= _MAX_NESTED:
                    break
        return result[::-1]

    def moment_text(self, moment: int) -> str:
        """A moment in milliseconds, with as many decimals as the view can show."""
        decimals = max(0, min(_NANOSECOND_DECIMALS, 8 - len(str(self.end - self.begin))))
        return f"{moment / 1e6:,.{decimals}f} ms"

    def step_at(self, moment: int) -> str:
        """The label of the step at a moment; empty outside of all steps."""
        return next((step.label for step in self._trace.steps if step.begin_ns <= moment < step.end_ns), "")


def axis_line(timeline: TraceTimeline, width: int) -> Line:
    """The times at the ticks of the view."""
    room = max(1, width - LABEL_WIDTH)
    text = ""
    for tick in range(_TICKS):
        at = room * tick // _TICKS
        label = "│" + timeline.moment_text(timeline.begin + (timeline.end - timeline.begin) * tick // _TICKS)
        text = text[: at - 1].ljust(at) + label if at else label
    head = f" {ns_text(timeline.end - timeline.begin)} in view"
    return line(Span(head.ljust(LABEL_WIDTH), Role.PLAIN), Span(text[:room].ljust(room), Role.GRID))


def lane_line(timeline: TraceTimeline, opened: OpenTrace, index: int, width: int) -> Line:
    """A lane: its name, and for each cell how busy it was, in the role of the class with most of the time."""
    room = max(1, width - LABEL_WIDTH)
    at = int((timeline.cursor - timeline.begin) / (timeline.end - timeline.begin) * room)
    spans = [Span(clipped(opened.trace.lanes[index].label, LABEL_WIDTH - 1).ljust(LABEL_WIDTH), Role.PLAIN)]
    for cell, (share, number) in enumerate(timeline.cells(index, room)):
        mark = _MARKS[min(8, max(1, round(share * 8)))] if share > 0 else " "
        role = timeline_role(number) if share > 0 else Role.GRID
        spans.append(Span(mark, Role.CURSOR) if cell == at else Span(mark, role))
    return merged(spans)


def legend_line(trace: Trace, width: int) -> Line:
    """The classes of the trace with the role that they are drawn with."""
    spans = []
    for item in trace.classes:
        if item.max_ns:
            spans += [Span("█", class_role(item.name)), Span(f" {LABELS[item.name]}  ", Role.DIM)]
    return cut(spans, width)


def cursor_lines(timeline: TraceTimeline, opened: OpenTrace, index: int, width: int, rows: int) -> list[Line]:
    """The moment under the cursor, the events of a lane there, and the innermost event of each other lane."""
    lanes = opened.trace.lanes
    step = timeline.step_at(timeline.cursor)
    label = lanes[index].label if lanes else ""
    head = f" at {timeline.moment_text(timeline.cursor)}" + (f", {step}" if step else "") + f", {label}"
    lines = [line(Span(clipped(head, width).ljust(width), Role.HEADING))]
    events = timeline.events_at(index, timeline.cursor) if lanes else []
    lines += [_event_line(event, "", width) for event in events[-max(1, rows - 1) :]] or [
        line(Span(" nothing", Role.DIM))
    ]
    for other in range(min(len(lanes), _MAX_OTHER_LANES)):
        if other != index and len(lines) < rows:
            innermost = timeline.events_at(other, timeline.cursor)[-1:]
            lines += [_event_line(event, lanes[other].label, width) for event in innermost]
    return lines


def _event_line(event: NamedEvent, lane: str, width: int) -> Line:
    name = TIMELINE_CLASSES[event.share]
    spans = [Span(f" {ns_text(event.end - event.begin):>8}  "), Span(f"{lane}  " if lane else "", Role.DIM)]
    return cut([*spans, Span(f"{work_label(name)}  ", timeline_role(event.share)), Span(event.name)], width)
